package fanout

import (
	"fmt"
	"testing"
)

// While memory is short a feed of few streams keeps nothing, from at once on, and its streams miss
// nothing; one of many goes on. When that is over, feeds keep frames again.
func TestLowMemoryKeepsFramesOfManyStreamsOnly(t *testing.T) {
	w := newWorld(t, plenty)
	w.set("n/a", "web")
	w.hub.Dispatch()
	open := func(app string) *Cursor {
		s := w.resource.Snapshot()
		c := w.hub.ViewFor("").CursorAt(s.Next, s.RV, selectorOf(t, "", "", "app="+app, ""), plain)
		t.Cleanup(c.Close)
		return c
	}
	var many []*Cursor
	for range sharedStreamsMin {
		many = append(many, open("web"))
	}
	few := open("db")
	write := func(n int) {
		for i := range n {
			w.set(fmt.Sprint("n/w", i), "web")
			w.set(fmt.Sprint("n/d", i), "db")
		}
		w.hub.Dispatch()
	}
	expect := func(c *Cursor, n int) {
		t.Helper()
		total := 0
		for {
			run, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if len(run) == 0 {
				break
			}
			total += len(decode(t, run, plain))
		}
		if total != n {
			t.Errorf("%d events, want %d", total, n)
		}
	}
	kept := func(c *Cursor, want bool) {
		t.Helper()
		if got := len(c.feed.segments.Load().segments) > 0; got != want {
			t.Errorf("the feed keeps frames: %v, want %v", got, want)
		}
	}
	write(10)
	kept(few, true)
	expect(many[0], 10)
	w.hub.SetLowMemory(true)
	w.hub.Dispatch()
	kept(few, false)
	kept(many[0], true)
	expect(few, 10)
	write(10)
	kept(few, false)
	expect(few, 10)
	expect(many[0], 10)
	expect(many[1], 20)
	w.hub.SetLowMemory(false)
	write(10)
	kept(few, true)
	expect(few, 10)
	expect(many[0], 10)
}

// Feeds with few streams share a budget: all of them together keep no more than fits, and every
// stream gets everything.
func TestFeedsShareAByteBudget(t *testing.T) {
	const most, feeds = 100 << 10, 40
	w := newWorld(t, plenty)
	budget := NewByteBudget(most)
	w.hub.SetBudget(budget)
	w.set("n/a", "web")
	w.hub.Dispatch()
	var all []*Cursor
	for i := range feeds {
		s := w.resource.Snapshot()
		c := w.hub.ViewFor("").CursorAt(s.Next, s.RV, selectorOf(t, "", "", fmt.Sprint("app!=", i), ""), plain)
		defer c.Close()
		all = append(all, c)
	}
	got := make([]int, feeds)
	const events = 200
	for i := range events {
		w.setPadded(fmt.Sprint("n/", i), "web", 2000)
		w.hub.Dispatch()
		if held := budget.used.Load(); held > most+maxSegmentBytes {
			t.Fatalf("%d bytes are held in a budget of %d", held, most)
		}
		for n, c := range all[i%2*feeds/2:][:feeds/2] { // each second one lags behind
			for run := []byte("first"); len(run) > 0; {
				var err error
				if run, err = c.Next(); err != nil {
					t.Fatal(err)
				}
				got[i%2*feeds/2+n] += len(decode(t, run, plain))
			}
		}
	}
	if budget.used.Load() == 0 {
		t.Error("nothing is kept")
	}
	for i, n := range got {
		if n < events-1 {
			t.Errorf("stream %d got %d events of %d", i, n, events)
		}
	}
	for _, c := range all {
		c.Close()
	}
	w.hub.Dispatch()
	if held := budget.used.Load(); held != 0 {
		t.Errorf("%d bytes are held without a cursor", held)
	}
}
