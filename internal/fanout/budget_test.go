package fanout

import (
	"fmt"
	"testing"

	"spillway/internal/object"
)

// turnover is what a new segment costs: itself, its data, its marks, and the list that it stands
// in.
const turnover = 5

// batch puts n events into the log, a third of them deletions, and returns how far the hub is
// before them.
func batch(w *world, n int) *progress {
	w.hub.Dispatch()
	before := w.hub.progress.Load()
	for i := range n {
		key := fmt.Sprintf("a/pod%d", i%7)
		if i%3 == 2 {
			w.delete(fmt.Sprintf("a/pod%d", (i-1)%7))
			continue
		}
		w.setPadded(key, "web", 100)
	}
	return before
}

// An event costs the hub no allocation, whatever its type and however many feeds see it: only
// progress, once per batch, and the segments that the frames fill.
func TestDispatchAllocatesPerSegmentOnly(t *testing.T) {
	w := newWorld(t, plenty)
	cursors := []*Cursor{w.live(everything, plain), w.live(app("web"), chunked), w.live(node("node-web"), chunked),
		w.live(namespace("z"), plain)}
	const events = 300
	before := batch(w, events)
	again := func() {
		w.hub.progress.Store(before)
		w.hub.Dispatch()
	}
	for range 10 { // segments grow
		again()
	}
	perSegment := min(maxSegmentFrames, segmentBytesPerStream/500) // each has one stream
	bound := 1 + len(cursors)*turnover*(events/perSegment+1)
	if n := testing.AllocsPerRun(20, again); n > float64(bound) {
		t.Fatalf("%v allocations for %d events on %d feeds, want at most %d", n, events, len(cursors), bound)
	}
	if bound > events {
		t.Fatal("the bound allows an allocation per event")
	}
}

// Feeds that an event does not concern cost nothing, and the one that it does no allocation but for
// segments.
func TestDispatchAmongManyFeedsAllocatesNothing(t *testing.T) {
	w := newWorld(t, plenty)
	for i := range 5000 {
		w.live(node(fmt.Sprint(i)), chunked)
		w.live(app(fmt.Sprint(i)), chunked)
	}
	const events = 100
	before := batch(w, events)
	again := func() {
		w.hub.progress.Store(before)
		w.hub.Dispatch()
	}
	if n := testing.AllocsPerRun(20, again); n > 1 {
		t.Fatalf("%v allocations for %d events that none of 10000 feeds sees, want one for progress", n, events)
	}
	w.live(node("node-web"), chunked)
	for range 10 {
		again()
	}
	if n := testing.AllocsPerRun(20, again); n > 1+turnover {
		t.Fatalf("%v allocations for %d events that one of 10001 feeds sees", n, events)
	}
}

func TestDeliveryAllocatesNothing(t *testing.T) {
	w := newWorld(t, plenty)
	c := w.live(everything, chunked)
	batch(w, 300)
	w.hub.Dispatch()
	begin := *c
	if run, err := drain(c); err != nil || len(run) < 2*segmentBytesPerStream || !c.live {
		t.Fatalf("%d bytes, %v, from the feed: %v", len(run), err, c.live)
	}
	bytes := 0
	if n := testing.AllocsPerRun(100, func() {
		*c = begin
		for {
			run, err := c.Next()
			if bytes += len(run); err != nil || len(run) == 0 {
				return
			}
		}
	}); n > 0 {
		t.Fatalf("%v allocations for the delivery of 300 events", n)
	}
	if bytes < 100*2*segmentBytesPerStream {
		t.Fatalf("only %d bytes were delivered", bytes)
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	w := newWorld(b, plenty)
	for _, size := range []int{300, 3000, 30000} {
		o := w.pod("a/x", "web", 100, size)
		for _, kind := range []object.Type{object.Modified, object.Deleted} {
			b.Run(fmt.Sprintf("%v/%d", kind, o.Size()), func(b *testing.B) {
				dst := make([]byte, 0, EventSize(o))
				b.ReportAllocs()
				b.SetBytes(int64(o.Size()))
				for b.Loop() {
					dst = made(AppendEvent(dst[:0], chunked, kind, o, 12345))
				}
			})
		}
	}
}

// BenchmarkDispatch is the hub's work per event, as the number of feeds grows that see it, or do
// not.
func BenchmarkDispatch(b *testing.B) {
	for _, feeds := range []int{1, 10, 100, 1000} {
		for _, seen := range []bool{true, false} {
			b.Run(fmt.Sprintf("feeds=%d/seen=%v", feeds, seen), func(b *testing.B) {
				w := newWorld(b, plenty)
				for i := range feeds {
					sel := node(fmt.Sprint(i))
					if seen {
						sel = except(fmt.Sprint(i))
					}
					w.live(sel, chunked)
				}
				benchmarkDispatch(b, w)
			})
		}
	}
}

// BenchmarkDispatchByNode is the hub's work per event if every kubelet watches the pods of its
// node.
func BenchmarkDispatchByNode(b *testing.B) {
	for _, feeds := range []int{1, 5000} {
		b.Run(fmt.Sprintf("feeds=%d", feeds), func(b *testing.B) {
			w := newWorld(b, plenty)
			for i := range feeds - 1 {
				w.live(node(fmt.Sprint(i)), chunked)
			}
			w.live(node("node-web"), chunked)
			benchmarkDispatch(b, w)
		})
	}
}

// benchmarkDispatch dispatches the same events again and again.
func benchmarkDispatch(b *testing.B, w *world) {
	const events = 100
	before := batch(w, events)
	b.ReportAllocs()
	for b.Loop() {
		w.hub.progress.Store(before)
		w.hub.Dispatch()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// BenchmarkDelivery is what one client costs per event: from its feed, or from the log.
func BenchmarkDelivery(b *testing.B) {
	for _, follow := range []bool{true, false} {
		b.Run(fmt.Sprintf("feed=%v", follow), func(b *testing.B) {
			w := newWorld(b, plenty)
			c := w.live(everything, chunked)
			const events = 300
			batch(w, events)
			w.hub.Dispatch()
			if !follow {
				c.feed = nil
			}
			begin := *c
			b.ReportAllocs()
			for b.Loop() {
				*c = begin
				for {
					run, err := c.Next()
					if err != nil {
						b.Fatal(err)
					}
					if len(run) == 0 {
						break
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
		})
	}
}
