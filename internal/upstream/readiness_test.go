package upstream

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"spillway/internal/fakeapiserver"
)

// However many mirrors need to know whether upstream serves, it is probed once a second.
func TestServesIsRequestedOnceForAll(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	for range 100 {
		if !c.Serves(t.Context()) {
			t.Fatal("it serves")
		}
	}
	asked := slices.DeleteFunc(s.Requests(), func(r fakeapiserver.Request) bool { return r.Path != "/readyz" })
	if len(asked) > 2 {
		t.Errorf("asked %d times", len(asked))
	}
}

// A caller that leaves decides for no other whether upstream serves, and waits for no answer.
func TestServesOutlivesItsFirstCaller(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	asked, release := make(chan struct{}), make(chan struct{})
	s.Handle("/readyz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		w.WriteHeader(http.StatusOK)
	}))
	ctx, cancel := context.WithCancel(deadline(t))
	first := make(chan bool)
	go func() { first <- c.Serves(ctx) }()
	<-asked
	cancel()
	if <-first {
		t.Error("upstream serves before it has answered")
	}
	close(release)
	if !c.Serves(deadline(t)) {
		t.Error("a caller that left has ended the probe of all")
	}
}
