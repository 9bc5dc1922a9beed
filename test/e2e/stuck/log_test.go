package stuck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// A log that nothing reads, through a restart of the API server: events are in time, answers have
// their age, probes and metrics are answered, lost lines are counted, and SIGTERM ends the process
// as if the log were read.
func TestUnreadLogStopsNothing(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	for _, form := range []struct{ name, kubeconfig, identity string }{
		{"proxy", w.cp.Kubeconfig(self), "self"},
		{"sidecar", w.podKubeconfig(), identityPodToken},
	} {
		for _, level := range []string{"info", "debug"} {
			name := form.name + "-" + level
			t.Run(name, func(t *testing.T) {
				w.t = t
				s := start(t, binary, "--kubeconfig="+form.kubeconfig, "--listen-identity="+form.identity, "--log-level="+level)
				if form.identity == identityPodToken {
					s.token = w.podToken()
				}
				events := s.events()
				w.write("before-" + name)
				if !arrives(events, "before-"+name, process.Patience) {
					t.Fatal("no event while all is well")
				}
				release := s.log.block()
				s.outage(w, events, name)
				if level == "debug" {
					s.losesLines()
					release()
					s.countsLines()
					release = s.log.block()
				}
				if err := s.terminates(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				release()
			})
		}
	}
}

// outage kills the API server, starts it again, and judges what clients get. A client with
// credentials has answers from memory for as long as their review is cached.
func (s *spillway) outage(w *world, events <-chan string, name string) {
	s.t.Helper()
	if s.token != "" {
		s.token = w.podToken() // not reviewed yet
	}
	reviewed := time.Now()
	if a := s.get(s.url + configMaps + "?resourceVersion=0"); a.code != http.StatusOK {
		s.t.Fatalf("while all is well: %+v", a)
	}
	w.cp.APIServer().Kill()
	stopped := time.Now()
	aged := false
	for time.Since(stopped) < 12*time.Second {
		a := s.get(s.url + configMaps + "?resourceVersion=0")
		since := time.Since(stopped) - a.took
		aged = aged || a.age >= 0
		switch {
		case a.code == http.StatusServiceUnavailable && s.token != "" && time.Since(reviewed) > cachedReview:
		case a.code != http.StatusOK:
			s.t.Fatalf("after %v: %+v", since, a)
		case a.age < 0 && since > 5*time.Second:
			s.t.Fatalf("after %v an answer without its age", since)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !aged {
		s.t.Error("no answer had an age")
	}
	must(s.t, w.cp.StartAPIServer(s.t.Context()))
	w.write("back-" + name)
	if !arrives(events, "back-"+name, 15*time.Second) {
		s.t.Fatal("the mirror has not recovered")
	}
	for n := range 4 {
		object := fmt.Sprintf("after-%s-%d", name, n)
		w.write(object)
		if !arrives(events, object, late) {
			s.t.Errorf("the event of %s is late by more than %v", object, late)
		}
	}
	process.Awaiting(s.t, "the state to be current", func(context.Context) error {
		if a := s.get(s.url + configMaps + "?resourceVersion=0"); a.code != http.StatusOK || a.age >= 0 {
			return fmt.Errorf("%d, age %d", a.code, a.age)
		}
		return nil
	})
	if a := s.get(s.metrics + "/readyz?verbose"); a.code != http.StatusOK ||
		!strings.Contains(a.body, "[!]loop log has not moved for") {
		s.t.Errorf("/readyz: %d %s", a.code, a.body)
	}
	if n := s.metric(`spillway_stalled_loops{loop="log"`); n != 1 {
		s.t.Errorf("%d logs are stalled", n)
	}
}

// losesLines opens watches until the lines of their ends find no room.
func (s *spillway) losesLines() {
	s.t.Helper()
	process.Awaiting(s.t, "lines to be dropped", func(context.Context) error {
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { s.get(s.url + configMaps + "?watch=1&resourceVersion=0&timeoutSeconds=1") })
		}
		all.Wait()
		if s.metric("spillway_log_lines_dropped_total") == 0 {
			return errors.New("none yet")
		}
		return nil
	})
}

// countsLines waits for the lines that tell how many were dropped.
func (s *spillway) countsLines() {
	s.t.Helper()
	process.Awaiting(s.t, "a line that tells of those that were dropped", func(context.Context) error {
		told := 0
		for _, e := range s.log.entries("log lines were dropped: their output was blocked") {
			lines, _ := e["lines"].(float64)
			told += int(lines)
		}
		if want := s.metric("spillway_log_lines_dropped_total"); told != want || told == 0 {
			return fmt.Errorf("%d told of %d", told, want)
		}
		return nil
	})
}

// The webhook's log that nothing reads holds up no review, and not its end.
func TestUnreadLogOfTheWebhook(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	for _, level := range []string{"info", "debug"} {
		t.Run(level, func(t *testing.T) {
			w.t = t
			cert, key, client := servingPair(t)
			s := launch(t, exec.Command(binary, "webhook", "--listen=127.0.0.1:0", "--image=spillway:1",
				"--kubeconfig="+w.cp.Kubeconfig(self), "--tls-cert-file="+cert, "--tls-private-key-file="+key,
				"--shutdown-timeout=1s", "--log-level="+level))
			s.client = client
			s.url = "https://" + s.address("serving admission reviews")
			release := s.log.block()
			w.cp.StopAPIServer()
			for range 30 {
				if a := s.get(s.url + "/readyz"); a.code != http.StatusOK || a.took > late {
					t.Fatalf("%+v", a)
				}
				if code, took := s.review(); code != http.StatusOK || took > late {
					t.Fatalf("a review: %d after %v", code, took)
				}
				time.Sleep(100 * time.Millisecond)
			}
			must(t, w.cp.StartAPIServer(t.Context()))
			if code, took := s.review(); code != http.StatusOK || took > late {
				t.Errorf("a review: %d after %v", code, took)
			}
			if err := s.terminates(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			release()
		})
	}
}

// review sends a review of a pod that has no use for a sidecar.
func (s *spillway) review() (code int, took time.Duration) {
	began := time.Now()
	const text = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"namespace":"default","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}}}`
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/inject?timeout=10s", strings.NewReader(text))
	must(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		return 0, time.Since(began)
	}
	defer response.Body.Close()
	return response.StatusCode, time.Since(began)
}
