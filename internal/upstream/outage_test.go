package upstream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
)

// However upstream fails, a mirror goes on where its watch ended: not one of them lists when it
// is back.
func TestOutageCostsNoList(t *testing.T) {
	gvr := configMaps.GVR
	f := func(name string, o fakeapiserver.Options, fail func(*fakeapiserver.Server), failures uint64, gone bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := apiserver(t, o)
			s.Create(gvr, "a", "one")
			sink := newRecorder()
			r := mirror(t, c, configMaps, sink)
			sink.awaitState(t, s, configMaps)
			fail(s)
			eventually(t, "failures", func() bool { return r.Status().Failures >= failures })
			if st := r.Status(); gone && (st.Err == nil || st.FailingSince.IsZero()) {
				t.Errorf("while upstream fails: %+v", st)
			}
			s.Create(gvr, "a", "meanwhile")
			if err := s.Up(); err != nil {
				t.Fatal(err)
			}
			sink.awaitState(t, s, configMaps)
			// the status follows the call of the Sink
			eventually(t, "its status", func() bool { return r.Status().RV == s.Revision() })
			if st := r.Status(); st.Replaces != 1 || st.Err != nil || !st.FailingSince.IsZero() {
				t.Errorf("status %+v, want one complete state in all", st)
			}
			if n := s.Lists(gvr); n != 0 {
				t.Errorf("%d LISTs", n)
			}
		})
	}
	refuse := func(code int) func(*fakeapiserver.Server) {
		return func(s *fakeapiserver.Server) {
			s.FailWatches(3, code)
			s.DropWatches(gvr)
		}
	}
	f("refused connections", fakeapiserver.Options{}, (*fakeapiserver.Server).Down, 3, true)
	f("refused connections, TLS", fakeapiserver.Options{HTTP2: true}, (*fakeapiserver.Server).Down, 3, true)
	f("unanswered connections", fakeapiserver.Options{}, (*fakeapiserver.Server).Hang, 0, false)
	f("unanswered handshakes", fakeapiserver.Options{HTTP2: true}, (*fakeapiserver.Server).Hang, 2, true)
	f("a frozen process", fakeapiserver.Options{HTTP2: true}, (*fakeapiserver.Server).Freeze, 2, true)
	f("watches that end at once", fakeapiserver.Options{}, func(s *fakeapiserver.Server) {
		for range 5 {
			began := s.Watches(gvr).Long
			s.DropWatches(gvr)
			// it counts before it is open
			eventually(t, "another watch", func() bool { return s.Watches(gvr).Long > began && s.OpenWatches(gvr).Long == 1 })
		}
	}, 0, false)
	f("too many requests", fakeapiserver.Options{}, refuse(http.StatusTooManyRequests), 3, false)
	f("an API server that begins", fakeapiserver.Options{}, refuse(http.StatusServiceUnavailable), 3, false)
	f("an etcd that is unreachable", fakeapiserver.Options{}, refuse(http.StatusInternalServerError), 3, false)
	f("an authorizer that has not read its rules yet", fakeapiserver.Options{}, refuse(http.StatusForbidden), 3, false)
}

// A connection that is not closed but delivers nothing is noticed in seconds, not in the 45 that
// client-go takes.
func TestDeadConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	s, c := apiserver(t, fakeapiserver.Options{HTTP2: true})
	sink := newRecorder()
	r := mirror(t, c, configMaps, sink)
	sink.awaitState(t, s, configMaps)
	sink.await(t, "the state", func(log []string) bool { return len(log) > 0 })
	s.Freeze()
	frozen := time.Now()
	for r.Status().Err == nil {
		if time.Since(frozen) > 30*time.Second {
			t.Fatal("after 30 s the mirror still believes in its connection")
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
}

// A reflector in back-off retries as soon as upstream answers any request, and only one probes
// meanwhile.
func TestComeback(t *testing.T) {
	t.Parallel()
	s, c := apiserver(t, fakeapiserver.Options{})
	var asked atomic.Int32
	s.Handle("/readyz", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	s.Create(configMaps.GVR, "a", "one")
	s.Down()
	const mirrors = 20
	var sinks []*recorder
	for range mirrors {
		sink := newRecorder()
		r := mirror(t, c, configMaps, sink, WithPauses(time.Hour, time.Hour))
		eventually(t, "a failure", func() bool { return r.Status().Failures > 0 })
		sinks = append(sinks, sink)
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	for _, sink := range sinks {
		sink.awaitState(t, s, configMaps)
	}
	if n := asked.Load(); n == 0 || n >= mirrors {
		t.Errorf("%d probes went upstream", n)
	}
}

// What is not for us to know is as good as a yes: something serves there.
func TestServes(t *testing.T) {
	for code, want := range map[int]bool{200: true, 401: true, 403: true, 404: true, 429: false, 500: false, 503: false} {
		s, c := apiserver(t, fakeapiserver.Options{})
		s.Handle("/readyz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		if got := c.probeServing(deadline(t)); got != want {
			t.Errorf("%d: %v", code, got)
		}
	}
}

// Pauses grow, are never the same for all, and begin again.
func TestPace(t *testing.T) {
	p := pauses(100, 800)
	for i, want := range []time.Duration{100, 200, 400, 800, 800} {
		if d := p.Step(); d < want/2 || d >= want*3/2 {
			t.Errorf("pause %d is %d, want about %d", i, d, want)
		}
	}
	none := pauses(0, 0)
	if none.Step() != 0 {
		t.Error("no pause is not none")
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[spread(time.Second)] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 waiting requests go on at %d moments", len(seen))
	}
}
