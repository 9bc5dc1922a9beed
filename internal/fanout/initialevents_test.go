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
		c.BeginInitialEvents()
		other.BeginInitialEvents()
		dispatch()
		w.set("a/x", "web") // 104
		w.set("a/z", "web")
		dispatch()
		w.expect(c, "ADDED a/x 104", "ADDED a/z 105")
		w.rv = 109
		w.replace(append(w.kept("a/x", "a/y", "a/z"), w.pod("a/q", "web", 108, 0))...) // 110: a seam without a bookmark
		dispatch()
		w.expect(c, "ADDED a/q 108")
		c.EndInitialEvents()
		w.set("a/x", "web") // 111
		dispatch()
		w.expect(c, "MODIFIED a/x 111")
		w.expect(other)

		d := w.live(app("web"), bookmarks)
		d.BeginInitialEvents()
		w.set("a/y", "db") // leaves the selector
		dispatch()
		w.expectError(d, ErrInitialObjectDeleted.Error())
		w.expect(other, "ADDED a/y 112")
		w.delete("a/y")
		dispatch()
		w.expectError(other, ErrInitialObjectDeleted.Error())
	})
}

func TestLandsWhereItSawNothingSince(t *testing.T) {
	w, c := held(t, plenty)
	lands := func(want bool, s *cache.Snapshot) {
		t.Helper()
		landed := c.RebaseOn(s)
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
	w, c := held(t, plenty)
	state := compared(w, 110)
	w.expect(c)
	w.rv = 119
	w.replace(append(w.kept("a/x"), w.pod("a/y", "web", 108, 0))...)
	if c.RebaseOn(state) != nil {
		t.Fatal("landed in a gap")
	}
	w.expect(c, "ADDED a/y 108")
}

// The same for a gap without a change that the client sees: what came and went in it is unknown.
func TestLandsInNoUnseenGap(t *testing.T) {
	w, c := held(t, plenty)
	state := compared(w, 110)
	w.rv = 119
	w.replace(append(w.kept("a/x"), w.pod("a/q", "db", 108, 0))...)
	w.expect(c)
	if c.RebaseOn(state) != nil {
		t.Fatal("landed in a gap")
	}
	landed := c.RebaseOn(compared(w, 125))
	if landed == nil {
		t.Fatal("does not land after it")
	}
	landed.Close()
}

// What the log has let go of since may have been for the client.
func TestLandsNowhereBeforeTheLog(t *testing.T) {
	w, c := held(t, cache.HistoryLimits{HistoryBytes: 1 << 16})
	state := compared(w, 110)
	for range 200 {
		w.setPadded("a/q", "db", 1000)
		w.expect(c)
	}
	if first := w.resource.Log().First(); first <= state.Next {
		t.Fatalf("the log begins at %d, which is not after %d", first, state.Next)
	}
	if c.RebaseOn(state) != nil {
		t.Fatal("landed where the log does not begin yet")
	}
}

// What was proven of a history says nothing in the one that takes its place.
func TestLandsInNoOtherHistory(t *testing.T) {
	w, c := held(t, plenty)
	state := compared(w, 110)
	w.expect(c)
	w.resource.Disown(w.resource.Generation())
	w.rv = 106
	w.replace()
	if c.RebaseOn(state) != nil {
		t.Fatal("landed in another history")
	}
	w.expectError(c, "too old resource version: 102 (107)")
}

// held is a world of a/x, and the cursor of a client that has it and gets changes as initial state.
func held(t *testing.T, limits cache.HistoryLimits) (*world, *Cursor) {
	w := newWorld(t, limits)
	w.set("a/x", "web") // 102
	c := w.live(app("web"), bookmarks)
	c.BeginInitialEvents()
	return w, c
}

// compared is the state, as it is if upstream's at rv was found to be the same.
func compared(w *world, rv uint64) *cache.Snapshot {
	now := w.resource.Snapshot()
	return &cache.Snapshot{RV: rv, Reached: now.RV, Next: now.Next}
}
