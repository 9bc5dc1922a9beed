package watch

import (
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/cache"
)

const (
	watchList   = "/api/v1/pods?watch=1&allowWatchBookmarks=1"
	unmarkedNow = "/api/v1/pods?watch=1" // consistent, without a bookmark when the state is complete
)

// While the proof is under way a stream with an end bookmark sends what it has, after a moment;
// then whatever changes, as ADDED; and the bookmark when all that was there at the beginning has
// been sent (D7, W-215).
func TestHeldBookmark(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5", "a/y 6")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(watchList)
		time.Sleep(initialProofTimeout - 1)
		p.gets()
		time.Sleep(time.Nanosecond)
		p.gets("ADDED a/x 5", "ADDED a/y 6")
		w.set("a/x 101")
		w.set("a/z 102")
		w.set("a/z 103")
		p.gets("ADDED a/x 101", "ADDED a/z 102", "ADDED a/z 103")
		time.Sleep(time.Second)
		p.gets()
		w.oracle.Release()
		p.gets("BOOKMARK 110 end")
		w.set("a/x 111")
		w.remove("a/z 112")
		p.gets("MODIFIED a/x 111", "DELETED a/z 112")
	})
}

// An event newer than the question is a proof as good as a bookmark (W-211 l).
func TestHeldUntilAnEvent(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(watchList)
		time.Sleep(time.Second)
		p.gets("ADDED a/x 5")
		w.set("a/x 109")
		p.gets("ADDED a/x 109")
		w.set("a/x 111")
		p.gets("ADDED a/x 111", "BOOKMARK 111 end")
		w.oracle.Release()
	})
}

// What goes away before the bookmark ends the stream: some clients would keep a ghost (W-215).
func TestRetracted(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		change func(*world)
	}{
		"deleted":           {watchList, func(w *world) { w.remove("a/x 101 app=x") }},
		"left the selector": {watchList + "&labelSelector=app%3Dx", func(w *world) { w.set("a/x 101 app=y") }},
		"gone in a gap":     {watchList, func(w *world) { w.relist(105) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, d delivery) {
				w := newWorld(t, d, "a/x 5 app=x")
				w.oracle.Set(110, nil)
				w.oracle.Hold()
				p := w.watch(c.query)
				time.Sleep(time.Second)
				p.gets("ADDED a/x 5")
				c.change(w)
				p.ends(EndInitialObjectDeleted)
				w.oracle.Release()
			})
		})
	}
}

// A deletion of what this stream never showed is nothing to it.
func TestNotRetracted(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5 app=x", "a/y 6 app=y")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(watchList + "&labelSelector=app%3Dx")
		time.Sleep(time.Second)
		p.gets("ADDED a/x 5")
		w.remove("a/y 101 app=y")
		p.gets()
		w.oracle.Release()
		p.gets("BOOKMARK 110 end")
	})
}

// A gap that is closed meanwhile is part of the initial events, and the bookmark stands behind all
// of it.
func TestHeldOverAGap(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(watchList)
		time.Sleep(time.Second)
		p.gets("ADDED a/x 5")
		w.relist(120, "a/n 118", "a/x 119")
		p.gets("ADDED a/n 118", "ADDED a/x 119", "BOOKMARK 120 end")
		w.oracle.Release()
	})
}

// A proof may be of a history that the client has yet to be sent: it is looked at again once that
// was (W-215).
func TestHeldUntilWhatWasProven(t *testing.T) {
	whileProving(t, func(w *world, p *testClient, proofs chan<- proof) {
		p.gets("ADDED a/x 5")
		proofs <- proof{state: &cache.Snapshot{RV: 110, Reached: 105, Next: w.head() + 1}}
		p.gets()
		w.set("a/x 105")
		p.gets("ADDED a/x 105", "BOOKMARK 110 end")
		w.set("a/x 111")
		p.gets("MODIFIED a/x 111")
	})
}

// History may say by itself that nothing happened up to some point before the proof. That changes
// nothing of what the client has.
func TestHeldThroughProgress(t *testing.T) {
	whileProving(t, func(w *world, p *testClient, proofs chan<- proof) {
		p.gets("ADDED a/x 5")
		proven := &cache.Snapshot{RV: 110, Reached: 105, Next: w.head()}
		w.progress(109)
		p.gets()
		proofs <- proof{state: proven}
		p.gets("BOOKMARK 110 end")
	})
}

// A state that was proven to be as an older one says nothing to a client that has been sent what
// came and went in between.
func TestHeldBetween(t *testing.T) {
	whileProving(t, func(w *world, p *testClient, proofs chan<- proof) {
		proven := &cache.Snapshot{RV: 110, Reached: 105, Next: w.head()}
		w.set("a/y 106")
		p.gets("ADDED a/x 5", "ADDED a/y 106")
		proofs <- proof{state: proven}
		p.gets()
		w.remove("a/y 108")
		p.ends(EndInitialObjectDeleted)
	})
}

// whileProving runs f in a bubble with a watch-list of a/x that is held for what f proves.
func whileProving(t *testing.T, f func(w *world, p *testClient, proofs chan<- proof)) {
	synctest.Test(t, func(t *testing.T) {
		proofs := make(chan proof, 1)
		w := newWorld(t, func(*Manager) deliverer { return proving{proofs: proofs} }, "a/x 5")
		f(w, w.watch(watchList), proofs)
	})
}

// proving delivers to streams that are held until a proof of the test's own.
type proving struct {
	goroutines
	proofs chan proof
}

func (d proving) deliver(s *Stream) {
	err := s.out.begin()
	var reason EndReason
	if err == nil {
		reason, err = s.stateThenProof(d.proofs)
	}
	if reason != "" || err != nil {
		d.finish(s, nil, reason, err)
		return
	}
	d.live(s)
}

// Without an end bookmark the initial events are the claim: only the head goes out before the proof
// (W-215).
func TestUnmarked(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5", "a/y 6")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(unmarkedNow)
		time.Sleep(2 * time.Second)
		w.remove("a/y 101")
		p.gets()
		w.oracle.Release()
		p.gets("ADDED a/x 5")
		w.set("a/x 111")
		p.gets("MODIFIED a/x 111")
	})
}

// No proof in three seconds: a clean end, without the mark (W-216).
func TestUnproven(t *testing.T) {
	for query, state := range map[string][]string{watchList: {"ADDED a/x 5"}, unmarkedNow: nil} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			w.oracle.Set(110, nil)
			w.oracle.Hold()
			p := w.watch(query)
			time.Sleep(3*time.Second - 1)
			p.gets(state...)
			p.goesOn()
			time.Sleep(time.Nanosecond)
			p.ends(EndFreshnessTimeout)
			w.oracle.Release()
		})
	}
}

// A compressed watch that ends without an event is a gzip stream that contains nothing: decoders
// fail on a body of no bytes (W-7).
func TestUnprovenAndCompressed(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d)
		w.oracle.Set(0, errors.New("connection refused"))
		p := w.watchAs(watchList, func(st *Stream) { st.encoding.Gzip = true })
		z, err := gzip.NewReader(p.response().Body)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(z); err != nil || len(body) > 0 {
			t.Errorf("%q, %v", body, err)
		}
	})
}

// TestNothingToProveWith shows that nothing is proven while upstream does not answer, or while it
// is behind what it has promised (W-217).
func TestNothingToProveWith(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(0, errors.New("connection refused"))
		w.watch(watchList).ends(EndFreshnessTimeout)
		w.oracle.Set(90, nil)
		w.watch(unmarkedNow).ends(EndFreshnessTimeout)
	})
}

// A watch that is drained before its proof ends as such.
func TestOverBeforeProven(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		drained := w.watch(watchList)
		waiting := w.watch(unmarkedNow)
		time.Sleep(time.Second)
		drained.stream.Stop(EndDrain)
		waiting.stream.Stop(EndDrain)
		drained.ends(EndDrain, "ADDED a/x 5")
		waiting.ends(EndDrain)
		w.oracle.Release()
	})
}

// The time that a proof takes is not the client's: it is not evicted for it.
func TestWaitingIsNotStalling(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.manager.opts.StallTimeout = time.Second
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		marked, unmarked := w.watch(watchList), w.watch(unmarkedNow)
		time.Sleep(2 * time.Second)
		w.oracle.Release()
		marked.gets("ADDED a/x 5", "BOOKMARK 110 end")
		unmarked.gets("ADDED a/x 5")
		marked.goesOn()
		unmarked.goesOn()
	})
}
