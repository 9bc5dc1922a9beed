package fanout

import (
	"runtime"
	"testing"
	"weak"

	"spillway/internal/cache"
)

func TestFeedIsSharedAndGoesWithItsLastHolder(t *testing.T) {
	w := newWorld(t, plenty)
	feeds := func(want int) {
		t.Helper()
		if n := w.hub.Feeds(); n != want {
			t.Fatalf("%d feeds, want %d", n, want)
		}
	}
	a, b := w.live(app("web"), plain), w.live(app("web"), plain)
	feeds(1)
	if a.feed != b.feed {
		t.Fatal("equal selectors and encodings have different feeds")
	}
	others := []*Cursor{w.live(app("web"), chunked), w.live(app("db"), plain), w.live(everything, plain),
		w.live(namespace("a"), plain)}
	feeds(5)
	w.hub.Dispatch()
	w.set("a/x", "web")
	w.hub.Dispatch()
	if n := w.hub.Stats().Frames.Load(); n != 4 {
		t.Fatalf("%d frames were made for one event that 4 of 5 feeds see", n)
	}
	a.Close()
	a.Close()
	feeds(5)
	w.expect(b, "ADDED a/x 102")
	b.Close()
	feeds(4)
	for _, c := range others {
		c.Close()
	}
	feeds(0)
	c := w.live(app("web"), plain)
	feeds(1)
	if c.feed == a.feed {
		t.Fatal("a feed that was given up is used again")
	}
}

// A cursor may be anywhere when the feed it follows starts over: it must never step over what it
// has not seen.
func TestFeedThatStartsOverLeavesItsCursors(t *testing.T) {
	w := newWorld(t, plenty)
	w.set("a/x", "web")
	f := newFeed(feedKey{encoding: plain}, everything)
	f.activate(10)
	p, ok := f.locate(10)
	if !ok {
		t.Fatal("the feed does not reach back to where it starts")
	}
	e, _ := w.resource.Log().EntryAt(w.resource.Log().Head() - 1)
	f.add(e, 11, &frameCache{}) // and never published
	f.restart(50)
	if _, _, next, ok := f.read(p, 10); ok {
		t.Fatalf("a cursor at 10 was moved to %v of a feed that starts over at 50", next)
	}
	if p, ok := f.locate(50); !ok {
		t.Fatal("the feed does not reach back to where it starts over")
	} else if run, _, _, ok := f.read(p, 50); !ok || len(run) > 0 {
		t.Fatalf("%q, %v", run, ok)
	}
}

// Nothing is queued for a client: what a stalled one has not taken goes when the feed drops it.
func TestStalledCursorPinsNothing(t *testing.T) {
	w := newWorld(t, cache.HistoryLimits{HistoryBytes: 1 << 16})
	w.hub.Dispatch()
	c := w.live(everything, plain)
	w.hub.Dispatch()
	w.set("a/x", "web")
	w.hub.Dispatch()
	w.expect(c, "ADDED a/x 102")
	segment := weak.Make(c.feed.tail)
	for range 2 * minSegments * maxSegmentBytes / 1000 {
		w.setPadded("a/x", "web", 1000)
		w.hub.Dispatch()
	}
	runtime.GC()
	if segment.Value() != nil {
		t.Fatal("the segment that the cursor stalled at is still there")
	}
	if c.BufferedBytes() > 0 {
		t.Fatalf("%d bytes are held", c.BufferedBytes())
	}
	runtime.KeepAlive(c)
}

func TestHubRunsUntilItsContextEnds(t *testing.T) {
	w := newWorld(t, plenty)
	ctx, stop := contextFor(t)
	done := make(chan error)
	go func() { done <- w.hub.Run(ctx) }()
	c := w.live(everything, plain)
	for range 1000 {
		w.set("a/x", "web")
	}
	events := 0
	for events < 1000 {
		wait := c.Wait()
		run, err := c.Next()
		w.must(err)
		if len(run) == 0 {
			<-wait
			continue
		}
		events += len(decode(t, run, plain))
	}
	stop()
	w.must(<-done)
}

// What a feed keeps is in proportion to its streams: thousands of feeds for a stream each must not
// keep what one for thousands may.
func TestFeedKeepsByItsStreams(t *testing.T) {
	for streams, most := range map[int]int{1: minSegments * segmentBytesPerStream,
		100: minSegments * maxSegmentBytes} {
		w := newWorld(t, plenty)
		var c *Cursor
		for range streams {
			c = w.live(everything, plain)
		}
		for range 2 * minSegments * maxSegmentBytes / 1000 {
			w.setPadded("a/x", "web", 1000)
			w.hub.Dispatch()
		}
		kept := 0
		for _, s := range c.feed.segments.Load().segments {
			kept += len(s.data)
		}
		if kept < most/2 || kept > most {
			t.Errorf("%d streams: %d bytes are kept, want %d at most and no less than half of them", streams, kept, most)
		}
	}
}

// A frame larger than any segment has one of its own; the last few are kept however large they are.
func TestFeedKeepsLargeFrames(t *testing.T) {
	w := newWorld(t, plenty)
	c := w.live(everything, plain)
	for range 10 {
		w.setPadded("a/x", "web", 5*segmentBytesPerStream)
		w.hub.Dispatch()
	}
	if n := len(c.feed.segments.Load().segments); n != minSegments {
		t.Fatalf("%d segments are kept, want %d", n, minSegments)
	}
}
