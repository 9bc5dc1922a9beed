package swarm

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/bench/rig"
)

// TestEachStampIsCountedOnce lets a server of the standard library send to swarms of each kind.
func TestEachStampIsCountedOnce(t *testing.T) {
	const watches, events = 8, 50
	for _, c := range []struct {
		name    string
		tls     bool
		perConn int
		every   int
	}{{"plain", false, 0, 0}, {"TLS", true, 0, 0}, {"each other one by TLS", true, 0, 2}, {"HTTP/2", true, 4, 0}} {
		t.Run(c.name, func(t *testing.T) {
			begin, end := make(chan struct{}), make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-begin
				for i := range events {
					// Of all sizes: stamps come to lie across chunks, records and frames.
					fmt.Fprintf(w, `{"at":"%s%d","padding":"%s"}`, rig.StampPrefix, time.Now().Add(-time.Second).UnixNano(), strings.Repeat("x", i*997))
					if i%3 == 0 {
						_ = http.NewResponseController(w).Flush()
					}
				}
				_ = http.NewResponseController(w).Flush()
				<-end
			}))
			server.EnableHTTP2 = c.perConn > 0
			if c.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			defer close(end)
			s, err := Start(t.Context(), Options{Server: rig.Server{URL: server.URL}, Targets: slices.Repeat([]string{"/"}, watches), PerConn: c.perConn, Every: c.every})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			close(begin)
			want := watches * events / max(c.every, 1)
			if !s.Await(context.Background(), int64(want), 30*time.Second) {
				t.Fatalf("saw %d of %d", s.Seen(), want)
			}
			if d := s.Delays(); len(d) != want || d.At(0) < time.Second {
				t.Errorf("%d delays, the least %s, want %d above a second", len(d), d.At(0), want)
			}
			if lost, how := s.Lost(); lost > 0 {
				t.Errorf("lost %d: %v", lost, how)
			}
		})
	}
}

func TestLostWatchesAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		time.Sleep(10 * time.Millisecond)
	}))
	defer server.Close()
	s, err := Start(t.Context(), Options{Server: rig.Server{URL: server.URL}, Targets: []string{"/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !rig.Eventually(t.Context(), 30*time.Second, time.Millisecond, func() bool { lost, _ := s.Lost(); return lost == 1 }) {
		t.Error("a watch has ended and nobody noticed")
	}
}
