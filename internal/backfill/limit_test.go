package backfill

import (
	"context"
	"testing"

	"spillway/internal/fanout"
)

// One owner has half of the turns for backfills, and others find the rest.
func TestBackfillTurnsAreShared(t *testing.T) {
	l := NewWatchLimit(4)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := l.acquire(t.Context(), "mallory"); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.acquire(now, "mallory"); err == nil {
		t.Error("a third turn of four")
	}
	for _, owner := range []fanout.Owner{"alice", ""} {
		if err := l.acquire(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.acquire(now, "bob"); err == nil {
		t.Error("a fifth turn of four")
	}
	for _, owner := range []fanout.Owner{"mallory", "alice", "", "mallory"} {
		l.release(owner)
	}
	if len(l.mu.turnCounts) != 0 || len(l.turns) != 0 {
		t.Errorf("%d shares and %d turns are left", len(l.mu.turnCounts), len(l.turns))
	}
}
