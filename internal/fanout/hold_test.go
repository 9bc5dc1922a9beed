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

func TestHasWhatItSawNothingAfter(t *testing.T) {
	w := newWorld(t, plenty)
	w.set("a/x", "web")
	c := w.live(app("web"), bookmarks)
	c.Hold()
	has := func(want bool, s *cache.Snapshot) {
		t.Helper()
		if got := c.Has(s); got != want {
			t.Fatalf("has the state at %d: %t", s.RV, got)
		}
	}
	now := w.resource.Snapshot()
	has(true, now)
	w.progress()
	w.set("a/q", "db") // which the client does not see
	later := w.resource.Snapshot()
	has(true, now)
	has(false, later) // until it has passed that
	w.expect(c)
	has(true, now)
	has(true, later)
	w.set("a/y", "web")
	w.expect(c, "ADDED a/y 105")
	has(false, now)
	has(true, w.resource.Snapshot())
}
