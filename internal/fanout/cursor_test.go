package fanout

import (
	"fmt"
	"testing"

	"spillway/internal/cache"
)

// Each script runs with a cursor that follows its feed and with one that reads the log alone: they
// must not differ.
func bothWays(t *testing.T, limits cache.HistoryLimits, script func(w *world, dispatch func())) {
	t.Run("feed", func(t *testing.T) {
		w := newWorld(t, limits)
		script(w, w.hub.Dispatch)
	})
	t.Run("replay", func(t *testing.T) { script(newWorld(t, limits), func() {}) })
}

func TestCursorTellsWhatItsSelectorSees(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		all, web, other, onNode := w.live(everything, plain), w.live(app("web"), chunked), w.live(namespace("b"), plain),
			w.live(node("node-db"), plain)
		dispatch()
		w.expect(all)
		w.set("a/x", "web") // 102
		w.set("a/x", "db")
		w.set("b/y", "web")
		w.delete("a/x")
		dispatch()
		w.expect(all, "ADDED a/x 102", "MODIFIED a/x 103", "ADDED b/y 104", "DELETED a/x 105")
		w.expect(web, "ADDED a/x 102", "DELETED a/x 103", "ADDED b/y 104")
		w.expect(other, "ADDED b/y 104")
		w.expect(onNode, "ADDED a/x 103", "DELETED a/x 105")
		for _, c := range []*Cursor{all, web, other, onNode} {
			if c.CompleteRV() != 105 || c.IsInSeam() || c.Lag() != 0 {
				w.Fatalf("through %d, in seam %v, lag %d", c.CompleteRV(), c.IsInSeam(), c.Lag())
			}
			c.Close()
			c.Close()
		}
	})
}

func TestCursorResumesAfterWhatItSaw(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		w.set("a/x", "web") // 102
		w.set("a/y", "web")
		w.progress() // 104
		w.set("a/z", "web")
		dispatch()
		w.expect(w.resume(101, everything, plain), "ADDED a/x 102", "ADDED a/y 103", "ADDED a/z 105")
		w.expect(w.resume(102, everything, plain), "ADDED a/y 103", "ADDED a/z 105")
		w.expect(w.resume(104, everything, plain), "ADDED a/z 105")
		w.expect(w.resume(105, everything, plain))
		if _, err := w.hub.ViewFor("").CursorFromRV(100, everything, plain); err == nil ||
			err.Error() != "too old resource version: 100 (101)" {
			w.Fatal(err)
		}
	})
}

// Progress is known to a cursor that nothing was sent to.
func TestCursorIsCompleteThroughWhatItDoesNotSee(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		c := w.live(namespace("b"), bookmarks)
		dispatch()
		w.set("a/x", "web")
		w.progress()
		dispatch()
		w.expect(c)
		if c.CompleteRV() != w.rv {
			w.Fatalf("through %d, want %d", c.CompleteRV(), w.rv)
		}
	})
}

func TestCursorLappedByTheLogExpires(t *testing.T) {
	limits := cache.HistoryLimits{HistoryBytes: 4000}
	bothWays(t, limits, func(w *world, dispatch func()) {
		dispatch()
		c := w.live(everything, plain)
		dispatch()
		w.set("a/x", "web")
		dispatch()
		w.expect(c, "ADDED a/x 102")
		for range 200 {
			w.setPadded("a/x", "web", 1000)
			dispatch()
		}
		if w.resource.Log().Floor() <= 102 {
			w.Fatal("the log keeps everything: nothing is tested")
		}
		// A feed is short, too: the cursor reads from the log.
		for range 8 * maxSegmentBytes / 1000 {
			w.setPadded("a/x", "web", 1000)
			dispatch()
		}
		_, err := drain(c)
		var expired *cache.ExpiredError
		if !asExpired(err, &expired) || expired.RequestedRV != 102 || expired.OldestRV != w.resource.Log().Floor() {
			w.Fatal(err)
		}
	})
}

func TestCursorExpiresWhenHistoryIsVoid(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		w.set("a/x", "web")
		w.set("a/x", "web")
		dispatch()
		caughtUp, behind, pending := w.live(everything, plain), w.resume(101, everything, plain),
			w.resume(500, everything, plain)
		w.expect(caughtUp)
		w.expect(pending)
		dispatch()
		w.must(w.resource.Replace(nil, 90)) // a restored etcd
		dispatch()
		w.expectError(caughtUp, "too old resource version: 103 (90)")
		w.expectError(behind, "too old resource version: 101 (90)")
		w.expectError(pending, "too old resource version: 500 (90)")
		if _, err := w.hub.ViewFor("").CursorFromRV(103, everything, plain); err == nil {
			w.Fatal("a resume in a past that no longer exists was accepted")
		}
		fresh := w.live(everything, plain)
		w.rv = 90
		w.set("a/z", "web")
		dispatch()
		w.expect(fresh, "ADDED a/z 91")
	})
}

func asExpired(err error, target **cache.ExpiredError) bool {
	e, ok := err.(*cache.ExpiredError) //nolint:errorlint // it comes unwrapped
	*target = e
	return ok
}

// W-106: silence until the present passes the client's resourceVersion.
func TestCursorFromTheFutureSwallowsWhatTheClientHas(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		c, next := w.resume(103, everything, bookmarks), w.resume(104, everything, bookmarks)
		dispatch()
		w.set("a/x", "web") // 102
		dispatch()
		w.expect(c)
		if c.CompleteRV() != 103 {
			w.Fatalf("a client was promised %d, but has seen 103", c.CompleteRV())
		}
		w.set("a/y", "web") // 103
		dispatch()
		w.expect(c)
		w.set("a/z", "web") // 104
		w.set("a/z", "db")
		dispatch()
		w.expect(c, "ADDED a/z 104", "MODIFIED a/z 105")
		w.expect(next, "MODIFIED a/z 105")
	})
}

// A client from the future that the present has just reached is like any other: it gets the
// deletions of a gap.
func TestCursorFromTheFutureGetsTheSeamItMeets(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		c := w.resume(103, everything, bookmarks)
		w.set("a/x", "web")
		w.set("a/y", "web") // 103: P
		dispatch()
		w.expect(c)
		w.replace(w.kept("a/y")...) // 104: L
		dispatch()
		w.expect(c, "DELETED a/x 103", "BOOKMARK 104")
	})
}

// Strictly inside a gap the history is unknown, whether the client comes after it or before (design
// D5).
func TestCursorFromTheFutureInsideASeamExpires(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		w.set("a/x", "web") // 102: P
		inside, end, beyond := w.resume(105, everything, bookmarks), w.resume(110, everything, bookmarks),
			w.resume(111, everything, bookmarks)
		w.rv = 106
		changed := w.pod("a/y", "web", 106, 0)
		w.rv = 109
		w.replace(changed) // 110: L
		dispatch()
		w.expectError(inside, "too old resource version: 105 (110)")
		w.expect(end)
		w.expect(beyond)
		w.set("a/z", "web") // 111
		w.set("a/z", "db")
		dispatch()
		w.expect(end, "ADDED a/z 111", "MODIFIED a/z 112")
		w.expect(beyond, "MODIFIED a/z 112")
	})
}

// A seam reads: deletions at P, changes ascending, what cannot be stamped P at L; then a bookmark
// for streams that take bookmarks.
func TestCursorReadsSeams(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		with, without, elsewhere := w.live(everything, bookmarks), w.live(everything, chunked),
			w.live(namespace("z"), bookmarks)
		dispatch()
		w.set("a/x", "web")
		w.set("a/y", "web")
		w.set("a/z", "web") // 104: P
		dispatch()
		first := []string{"ADDED a/x 102", "ADDED a/y 103", "ADDED a/z 104"}
		w.expect(with, first...)
		w.expect(without, first...)
		w.rv = 110
		w.replace(w.pod("a/y", "db", 107, 0), w.pod("a/w", "db", 106, 0)) // 111: L
		dispatch()
		seam := []string{"DELETED a/x 104", "ADDED a/w 106", "MODIFIED a/y 107", "DELETED a/z 111"}
		w.expect(without, seam...)
		w.expect(with, append(seam, "BOOKMARK 111")...)
		w.expect(elsewhere, "BOOKMARK 111")
		for _, c := range []*Cursor{with, without, elsewhere} {
			if c.CompleteRV() != 111 || c.IsInSeam() {
				w.Fatalf("through %d, in seam %v", c.CompleteRV(), c.IsInSeam())
			}
		}
		w.expect(w.resume(104, everything, bookmarks), append(seam, "BOOKMARK 111")...)
		w.expect(w.resume(103, everything, chunked), append(first[2:], seam...)...)
		w.expect(w.resume(111, everything, bookmarks))
		for _, rv := range []uint64{105, 106, 107, 110} {
			if c, err := w.hub.ViewFor("").CursorFromRV(rv, everything, plain); err == nil {
				run, _ := drain(c)
				w.Fatalf("a resume at %d, inside the gap, was accepted: %q", rv, decode(w, run, plain))
			}
		}
	})
}

// A gap in which nothing was deleted is a gap all the same: something may have come and gone.
func TestResumeInsideAGapWithoutDeletionsIsRefused(t *testing.T) {
	w := newWorld(t, plenty)
	w.set("a/x", "web") // 102: P
	w.rv = 109
	w.replace(append(w.kept("a/x"), w.pod("a/y", "web", 106, 0))...) // 110: L
	f := func(rv uint64, refusal string) {
		t.Helper()
		_, err := w.hub.ViewFor("").CursorFromRV(rv, everything, plain)
		if (err == nil) != (refusal == "") || err != nil && err.Error() != refusal {
			t.Fatalf("resume at %d: %v, want %q", rv, err, refusal)
		}
	}
	f(101, "")
	f(102, "")
	f(103, "too old resource version: 103 (110)")
	f(105, "too old resource version: 105 (110)")
	f(106, "too old resource version: 106 (110)")
	f(109, "too old resource version: 109 (110)")
	f(110, "")
	f(111, "")
}

// While a client is inside a seam, it is complete through P: it gets no bookmark and does not end.
func TestCursorKnowsThatItIsInsideASeam(t *testing.T) {
	bothWays(t, plenty, func(w *world, dispatch func()) {
		dispatch()
		c := w.live(everything, chunked)
		dispatch()
		const many = 40
		for i := range many {
			w.setPadded(fmt.Sprintf("a/%d", i), "web", 9000)
		}
		dispatch()
		if run, err := drain(c); err != nil || len(decode(w, run, chunked)) != many {
			w.Fatal(err)
		}
		p := w.rv
		w.rv += 10
		w.replace() // everything is gone: more than one run
		dispatch()
		partly := 0
		for {
			run, err := c.Next()
			w.must(err)
			if len(run) == 0 {
				break
			}
			if c.IsInSeam() {
				partly++
				if c.CompleteRV() != p {
					w.Fatalf("inside the seam the client is complete through %d, want %d", c.CompleteRV(), p)
				}
			}
		}
		if partly < 2 || c.IsInSeam() || c.CompleteRV() != w.rv {
			w.Fatalf("%d runs inside the seam; after it: in seam %v, through %d", partly, c.IsInSeam(), c.CompleteRV())
		}
	})
}

// A client that stalls costs what it lags: from the log once its feed has moved on, and from the
// feed again after that.
func TestCursorLappedByItsFeedGoesOnFromTheLog(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	c := w.live(everything, plain)
	w.hub.Dispatch()
	w.expect(c)
	var want []string
	for range 2 * minSegments * maxSegmentBytes / 1000 {
		w.setPadded("a/x", "web", 1000)
		w.hub.Dispatch()
	}
	reference := w.hub.NewReplayCursor(c.position, c.completeRV, everything, plain)
	run, err := drain(reference)
	w.must(err)
	want = decode(w, run, plain)
	w.expect(c, want...)
	if w.hub.Stats().FeedOverruns.Load() != 1 {
		t.Fatalf("lapped %d times: nothing is tested", w.hub.Stats().FeedOverruns.Load())
	}
	if !c.live {
		t.Fatal("the cursor has caught up, but does not follow its feed")
	}
	if c.BufferedBytes() != 0 {
		t.Fatalf("the cursor still holds %d bytes", c.BufferedBytes())
	}
	w.set("a/x", "db")
	w.hub.Dispatch()
	replayed := w.hub.Stats().ReplayedFrames.Load()
	if run, err = drain(c); err != nil || len(decode(w, run, plain)) != 1 ||
		w.hub.Stats().ReplayedFrames.Load() != replayed {
		t.Fatalf("%q, %v: not from the feed", run, err)
	}
}

func TestCursorWaitsForItsOwnEventsOnly(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	c := w.live(app("web"), plain)
	w.hub.Dispatch()
	w.expect(c)
	wait := c.Wait()
	w.set("a/x", "db")
	w.hub.Dispatch()
	select {
	case <-wait:
		t.Fatal("woken by an event that it does not see")
	default:
	}
	w.set("a/x", "web")
	w.hub.Dispatch()
	select {
	case <-wait:
	default:
		t.Fatal("not woken by its own event")
	}
	w.expect(c, "ADDED a/x 103")
	wait = c.Wait()
	w.must(w.resource.Replace(nil, 50))
	w.hub.Dispatch()
	select {
	case <-wait:
	default:
		t.Fatal("not woken when history is void")
	}
}

// A cursor that read a change from the log must not then wait for its feed to show it: nothing
// would wake it again.
func TestCursorThatMeetsItsFeedHalfwayMissesNoWake(t *testing.T) {
	w := newWorld(t, plenty)
	w.hub.Dispatch()
	c := w.live(everything, plain)
	w.set("a/x", "web")
	wait := c.Wait() // for the next change of the resource
	c.feed.activate(c.position)
	w.expect(c, "ADDED a/x 102")
	w.hub.Dispatch()
	w.expect(c)
	select {
	case <-wait:
		t.Fatal("woken by nothing")
	default:
	}
	w.set("a/x", "db")
	w.expect(c)
	w.hub.Dispatch()
	w.expect(c, "MODIFIED a/x 103")
}
