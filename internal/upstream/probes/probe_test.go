package probes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream/upstreamtest"
)

func TestProbeAndProof(t *testing.T) {
	for _, o := range []fakeapiserver.Options{{}, {TLS: true}, {HTTP2: true}} {
		o.ProofDelay = time.Millisecond
		eventually(t, "a proof on the connection of its probe, and another", func() bool {
			s, c := upstreamtest.NewServer(t, o)
			from := s.Create(configMaps.GVR, "a", "one")
			p := New(c, configMaps)
			for range 2 { // the second time on what the first left behind
				s.Bump()
				rv, probe, err := p.Begin(deadline(t))
				if err != nil {
					t.Fatal(err)
				}
				if rv != s.Revision() {
					t.Errorf("R is %d, storage at %d", rv, s.Revision())
				}
				got, err := probe.Prove(deadline(t), from)
				if err != nil {
					t.Fatal(err)
				}
				if got.Bookmark < rv || got.Events != 0 {
					t.Errorf("progress %+v, R %d", got, rv)
				}
				probe.Close()
				probe.Close()
				if !got.SameConnection { // net/http lets go of one if it is slow to learn that its request is sent
					return false
				}
			}
			requests := append(s.RequestsFor(configMaps.GVR, "list"), s.RequestsFor(configMaps.GVR, "watch")...)
			for _, r := range requests {
				if agent := r.Header.Get("User-Agent"); !strings.HasSuffix(agent, " probe") {
					t.Errorf("%s says it is %q", r.Verb, agent)
				}
			}
			if requests[0].Remote != requests[2].Remote || requests[1].Remote != requests[3].Remote {
				t.Error("a proof travelled on another connection than its probe")
			}
			if got, want := p.Stats(), (ProbeStats{Probes: 2, Proofs: 2}); got != want {
				t.Errorf("stats %+v", got)
			}
			return true
		})
	}
}

func TestProbesReuseTheirConnection(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	p := New(c, configMaps)
	eventually(t, "three probes on one connection", func() bool {
		for range 3 {
			_, probe, err := p.Begin(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			probe.Close()
		}
		seen := map[string]bool{}
		all := s.RequestsFor(configMaps.GVR, "list")
		for _, r := range all[len(all)-3:] {
			seen[r.Remote] = true
		}
		return len(seen) == 1
	})
	if _, open, err := p.Begin(deadline(t)); err != nil { // does not wait for the one under way
		t.Fatal(err)
	} else if _, second, err := p.Begin(deadline(t)); err != nil {
		t.Fatal(err)
	} else {
		open.Close()
		second.Close()
	}
}

func TestProofWithEvents(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{ProofDelay: time.Millisecond})
	from := s.Create(configMaps.GVR, "a", "one")
	s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithData("k", "v"))
	last := s.Delete(configMaps.GVR, "a", "one")
	rv, probe, err := New(c, configMaps).Begin(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	got, err := probe.Prove(deadline(t), from)
	if err != nil || got.Events != 2 || got.Last != last || got.Bookmark < rv {
		t.Errorf("%+v, %v; want two events up to %d and a bookmark of %d or more", got, err, last, rv)
	}
}

func TestProofFails(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{ProofDelay: time.Millisecond})
	from := s.Create(configMaps.GVR, "a", "one")
	s.Create(configMaps.GVR, "a", "two")
	s.ForgetHistory(configMaps.GVR)
	p := New(c, configMaps)
	_, probe, err := p.Begin(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if _, err := probe.Prove(deadline(t), from); !apierrors.IsResourceExpired(err) {
		t.Errorf("proof from before history: %v", err)
	}
	if _, err := probe.Prove(deadline(t), from); err == nil {
		t.Error("a probe that failed was used again")
	}
	s.FailProbes(1, http.StatusForbidden)
	if _, _, err := p.Begin(deadline(t)); !apierrors.IsForbidden(err) {
		t.Errorf("probe: %v", err)
	}
	if st := p.Stats(); st.Failures != 2 {
		t.Errorf("stats %+v", st)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Begin(ctx); err == nil {
		t.Error("probe with an ended context")
	}
}

// A proof that ends without a bookmark says so, and one that had to take another connection says
// that.
func TestProofWithoutBookmark(t *testing.T) {
	var closing atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"18"}}}` + "\n"))
			return
		}
		if closing.Load() {
			w.Header().Set("Connection", "close")
		}
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","metadata":{"resourceVersion":"20"}}`))
	}))
	defer s.Close()
	eventually(t, "a proof on the connection of its probe", func() bool {
		p := New(upstreamtest.NewClient(t, &rest.Config{Host: s.URL}), configMaps)
		for _, apart := range []bool{false, true} {
			closing.Store(apart)
			rv, probe, err := p.Begin(deadline(t))
			if err != nil || rv != 20 {
				t.Fatal(rv, err)
			}
			got, err := probe.Prove(deadline(t), 17)
			if err == nil && !apart && !got.SameConnection {
				probe.Close()
				return false
			}
			if want := (Progress{Events: 1, Last: 18, SameConnection: !apart}); err != nil || got != want {
				t.Errorf("apart %v: %+v, %v", apart, got, err)
			}
			probe.Close()
		}
		if got, want := p.Stats(), (ProbeStats{Probes: 2, Proofs: 2, WithoutBookmark: 2, OtherConnections: 1}); got != want {
			t.Errorf("stats %+v", got)
		}
		return true
	})
}

// A quiet resource is proven by a bookmark, one that has changed by its last event, and one at
// upstream's own version by nothing more.
func TestThrough(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{ProofDelay: time.Millisecond})
	from := s.Create(configMaps.GVR, "a", "one")
	f := func(from, wantLast, wantReached uint64) {
		t.Helper()
		last, reached, err := New(c, configMaps).ProveThrough(deadline(t), from)
		if err != nil || last != wantLast || reached < wantReached {
			t.Errorf("from %d: got %d, %d, %v, want %d, %d", from, last, reached, err, wantLast, wantReached)
		}
	}
	f(from, from, from)
	if n := len(s.RequestsFor(configMaps.GVR, "watch")); n != 0 {
		t.Errorf("%d watches", n)
	}
	elsewhere := s.Create(fakeapiserver.Pods, "a", "two")
	f(from, from, elsewhere)
	second := s.Create(configMaps.GVR, "a", "three")
	f(from, second, second)
	f(second+100, second+100, second) // history was rewritten: reached is below
	if _, reached, _ := New(c, configMaps).ProveThrough(deadline(t), second+100); reached >= second+100 {
		t.Errorf("reached %d, beyond upstream's own version", reached)
	}
}

// Without an answer there is no proof.
func TestThroughFails(t *testing.T) {
	s, c := upstreamtest.NewServer(t, fakeapiserver.Options{})
	from := s.Create(configMaps.GVR, "a", "one")
	s.Create(fakeapiserver.Pods, "a", "two")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // before a bookmark can come
	defer cancel()
	if last, reached, err := New(c, configMaps).ProveThrough(ctx, from); err == nil {
		t.Errorf("proven through %d by %d", reached, last)
	}
}
