package fanout

import (
	"testing"

	"spillway/internal/cache"
)

func TestHoldShowsChangesAsInitialState(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		w.set("a/x", "web") // 102
		w.set("a/y", "web")
		dispatch()
		c, other := w.live(app("web"), bookmarks), w.live(app("db"), bookmarks)
		c.Hold()
		other.Hold()
		dispatch()
		w.set("a/x", "web") // 104
		w.set("a/z", "web")
		dispatch()
		w.expect(c, "ADDED a/x 104", "ADDED a/z 105")
		w.rv = 109
		w.replace(append(w.kept("a/x", "a/y", "a/z"), w.pod("a/q", "web", 108, 0))...) // 110: a seam without a bookmark
		dispatch()
		w.expect(c, "ADDED a/q 108")
		c.Release()
		w.set("a/x", "web") // 111
		dispatch()
		w.expect(c, "MODIFIED a/x 111")
		w.expect(other)

		d := w.live(app("web"), bookmarks)
		d.Hold()
		w.set("a/y", "db") // leaves the selector
		dispatch()
		w.expectError(d, ErrRetracted.Error())
		w.expect(other, "ADDED a/y 112")
		w.delete("a/y")
		dispatch()
		w.expectError(other, ErrRetracted.Error())
	})
}

func TestLandsWhereItSawNothingSince(t *testing.T) {
	w, c := held(t)
	lands := func(want bool, s *cache.Snapshot) {
		t.Helper()
		landed := c.Land(s)
		if landed != nil {
			landed.Close()
		}
		if got := landed != nil; got != want {
			t.Fatalf("lands at %d: %t", s.RV, got)
		}
	}
	now := compared(w, 110)
	lands(true, now)
	w.progress()
	w.set("a/q", "db") // which the client does not see
	later := compared(w, 110)
	lands(true, now)
	lands(false, later) // until it has passed that
	w.expect(c)
	lands(true, now)
	lands(true, later)
	w.set("a/y", "web")
	w.expect(c, "ADDED a/y 105")
	lands(false, now)
	lands(true, compared(w, 110))
}

// A gap that is closed after the client's last look holds what it does not have.
func TestLandsInNoGap(t *testing.T) {
	w, c := held(t)
	state := compared(w, 110)
	w.expect(c)
	w.rv = 119
	w.replace(append(w.kept("a/x"), w.pod("a/y", "web", 108, 0))...)
	if c.Land(state) != nil {
		t.Fatal("landed in a gap")
	}
	w.expect(c, "ADDED a/y 108")
}

// What was proven of a history says nothing in the one that takes its place.
func TestLandsInNoOtherHistory(t *testing.T) {
	w, c := held(t)
	state := compared(w, 110)
	w.expect(c)
	w.resource.Disown(w.resource.Generation())
	w.rv = 106
	w.replace()
	if c.Land(state) != nil {
		t.Fatal("landed in another history")
	}
	w.expectError(c, "too old resource version: 102 (107)")
}

// held is a world of a/x, and the cursor of a client that has it and is told changes as initial state.
func held(t *testing.T) (*world, *Cursor) {
	w := newWorld(t, plenty)
	w.set("a/x", "web") // 102
	c := w.live(app("web"), bookmarks)
	c.Hold()
	return w, c
}

// compared is the state, as it is if upstream's at rv was found to be the same.
func compared(w *world, rv uint64) *cache.Snapshot {
	now := w.resource.Snapshot()
	return &cache.Snapshot{RV: rv, Reached: now.RV, Next: now.Next}
}
