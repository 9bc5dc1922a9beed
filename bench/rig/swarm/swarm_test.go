package swarm

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
					fmt.Fprintf(w, `{"at":"%s%d","padding":"%s"}`, rig.StampPrefix, time.Now().Add(-time.Second).UnixNano(),
						strings.Repeat("x", i*997))
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
			s, err := Start(t.Context(),
				Options{Server: rig.Server{URL: server.URL}, Targets: slices.Repeat([]string{"/"}, watches), PerConn: c.perConn,
					Every: c.every})
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
	if !rig.Eventually(t.Context(), 30*time.Second, time.Millisecond,
		func() bool { lost, _ := s.Lost(); return lost == 1 }) {
		t.Error("the end of a watch was not noticed")
	}
}

func TestEachConnectionShowsItsToken(t *testing.T) {
	for _, perConn := range []int{0, 2} {
		t.Run(fmt.Sprintf("%d watches per connection", perConn), func(t *testing.T) {
			var mu sync.Mutex
			shown := map[string][]string{} // by token
			end := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				shown[r.Header.Get("Authorization")] = append(shown[r.Header.Get("Authorization")], r.URL.Path)
				mu.Unlock()
				_ = http.NewResponseController(w).Flush()
				<-end
			}))
			server.EnableHTTP2 = perConn > 0
			server.StartTLS()
			defer server.Close()
			defer close(end)
			o := Options{
				Server: rig.Server{URL: server.URL, Token: "nobody's"}, PerConn: perConn, AtOnce: 3,
				Targets: []string{"/a/1", "/a/2", "/b/1", "/b/2", "/c/1"}, Tokens: []string{"a", "a", "b", "b", "c"},
			}
			if perConn > 0 {
				o.Tokens = []string{"a", "b", "c"}
			}
			s, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			mu.Lock()
			defer mu.Unlock()
			for token, want := range map[string][]string{"a": {"/a/1", "/a/2"}, "b": {"/b/1", "/b/2"}, "c": {"/c/1"}} {
				got := shown["Bearer "+token]
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("by token %s there were %q, want %q", token, got, want)
				}
			}
		})
	}
}

// TestConnectionsAreTriedAgain sends each first request of a connection away.
func TestConnectionsAreTriedAgain(t *testing.T) {
	const conns = 3
	var sent atomic.Int64
	end := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" || sent.Add(1) <= conns {
			http.Error(w, "too much to do", http.StatusTooManyRequests)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-end
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer close(end)
	o := Options{Server: rig.Server{URL: server.URL}, PerConn: 1, Targets: []string{"/never"}}
	if s, err := Start(t.Context(), o); err == nil {
		s.Close()
		t.Fatal("no watch was refused")
	}
	o.Targets, o.Tries = slices.Repeat([]string{"/"}, conns), conns+1
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if again := s.Again(); again != conns {
		t.Errorf("%d connections were tried again, want %d", again, conns)
	}
}
