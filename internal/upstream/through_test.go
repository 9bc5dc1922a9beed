package upstream

import (
	"context"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
)

// A quiet resource is proven by a bookmark, one that has changed by its last event, and one at
// upstream's own version by nothing more.
func TestThrough(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{ProofDelay: time.Millisecond})
	from := s.Create(configMaps.GVR, "a", "one")
	f := func(from, wantLast, wantReached uint64) {
		t.Helper()
		last, reached, err := c.Through(deadline(t), configMaps, from)
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
	if _, reached, _ := c.Through(deadline(t), configMaps, second+100); reached >= second+100 {
		t.Errorf("reached %d, beyond upstream's own version", reached)
	}
}

// Without an answer there is no proof.
func TestThroughFails(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	from := s.Create(configMaps.GVR, "a", "one")
	s.Create(fakeapiserver.Pods, "a", "two")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // before a bookmark can come
	defer cancel()
	if last, reached, err := c.Through(ctx, configMaps, from); err == nil {
		t.Errorf("proven through %d by %d", reached, last)
	}
}
