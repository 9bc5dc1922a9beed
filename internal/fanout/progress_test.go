package fanout

import (
	"testing"
	"time"
)

// A hub that has entries to dispatch and does not move shows it, and one that has dispatched rests.
func TestProgressOfAStuckHub(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	w.set("n/a", "x")
	if _, working := w.hub.Progress(); !working {
		t.Error("it has an entry to dispatch, and does not say so")
	}
	before, _ := w.hub.Progress()
	w.hub.mu.Lock() // what Dispatch waits for
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.hub.Dispatch()
	}()
	deadline := time.Now().Add(50 * time.Millisecond)
	for time.Now().Before(deadline) {
		if turns, working := w.hub.Progress(); !working || turns != before {
			t.Fatalf("%d turns, %d before; working: %v", turns, before, working)
		}
	}
	w.hub.mu.Unlock()
	<-done
	if turns, working := w.hub.Progress(); working || turns == before {
		t.Errorf("%d turns, %d before; working: %v", turns, before, working)
	}
}
