package fanout

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"spillway/internal/cache"
	"spillway/internal/object"
)

var seeds = flag.Int("seeds", 2, "how many random histories the equality tests try")

// reference is what one selector and encoding see of one generation of history, entry by entry: the
// specification.
type reference struct {
	cursor  *Cursor
	base    uint64
	bytes   []byte
	offsets []int    // bytes in front of the entry at base+i
	through []uint64 // what a client at base+i is complete through
	seam    []bool
}

func newReference(w *world, v view) *reference {
	s := w.resource.Snapshot()
	r := &reference{cursor: w.hub.NewReplayCursor(s.Next, s.RV, v.selector, v.encoding), base: s.Next}
	r.note()
	return r
}

func (r *reference) note() {
	r.offsets = append(r.offsets, len(r.bytes))
	r.through = append(r.through, r.cursor.completeRV)
	r.seam = append(r.seam, r.cursor.inSeam)
}

func (r *reference) advance(w *world) {
	for log := w.resource.Log(); r.cursor.position < log.Head(); {
		e, _ := log.EntryAt(r.cursor.position)
		r.cursor.scratch = r.cursor.scratch[:0]
		made(nil, r.cursor.takeEntry(e))
		r.bytes = append(r.bytes, r.cursor.scratch...)
		r.note()
	}
}

type view struct {
	selector object.Selector
	encoding object.Encoding
}

// reading is what one client got.
type reading struct {
	view       int
	start, end uint64 // log positions
	through    uint64
	seam       bool
	got        []byte
	expired    bool
}

// history is a random one: the writer, and the references it keeps.
type history struct {
	*world
	views       []view
	generations [][]*reference
	ended       chan struct{}
}

func newHistory(t *testing.T, limits cache.HistoryLimits) *history {
	h := &history{world: newWorld(t, limits), ended: make(chan struct{})}
	for _, s := range []object.Selector{everything, app("web"), node("node-db"), namespace("ns1"), namespace("nowhere"),
		selectorOf(t, "ns2", "pod3", "", ""), selectorOf(t, "ns0", "", "app in (x,db)", "")} {
		for _, e := range []object.Encoding{plain, bookmarks} {
			h.views = append(h.views, view{s, e})
		}
	}
	for _, e := range []object.Encoding{zipped, metadata} {
		h.views = append(h.views, view{everything, e})
	}
	h.begin()
	return h
}

// begin starts a generation.
func (h *history) begin() {
	var all []*reference
	for _, v := range h.views {
		all = append(all, newReference(h.world, v))
	}
	h.generations = append(h.generations, all)
}

// write makes one random change.
func (h *history) write(r *rand.Rand, voids bool) {
	key := fmt.Sprintf("ns%d/pod%d", r.IntN(3), r.IntN(10))
	h.rv += uint64(r.IntN(3)) // other resources
	switch n := r.IntN(200); {
	case n < 150:
		h.setPadded(key, []string{"web", "db", "x"}[r.IntN(3)], r.IntN(1500))
	case n < 180:
		h.delete(key)
	case n < 194:
		h.progress()
	case n < 199 || !voids:
		h.relist(r)
	default:
		h.must(h.resource.Replace(nil, h.resource.CompleteRV()-10))
		h.rv += 20
		h.begin()
	}
	for _, reference := range h.generations[len(h.generations)-1] {
		reference.advance(h.world)
	}
}

// relist is a gap in which some objects went, some changed and some came.
func (h *history) relist(r *rand.Rand) {
	var next []*object.Object
	for ns := range 3 {
		for i := range 10 {
			key := fmt.Sprintf("ns%d/pod%d", ns, i)
			o, ok := h.resource.Snapshot().Get(key)
			switch n := r.IntN(10); {
			case n < 2:
				h.rv++
				next = append(next, h.pod(key, "web", h.rv, r.IntN(500)))
			case ok && n < 8:
				next = append(next, o)
			}
		}
	}
	h.rv += uint64(r.IntN(2))
	if h.rv == h.resource.CompleteRV() {
		h.rv++
	}
	h.must(h.resource.Replace(next, h.rv))
}

// read is one client that begins somewhere, lags at random, and ends when it likes or must.
func (h *history) read(r *rand.Rand, i int, follow bool) reading {
	v := h.views[i]
	s := h.resource.Snapshot()
	c := h.hub.ViewFor("").CursorAt(s.Next, s.RV, v.selector, v.encoding)
	if r.IntN(2) == 0 {
		if resumed, err := h.hub.ViewFor("").CursorFromRV(s.RV-uint64(r.IntN(60)), v.selector, v.encoding); err == nil {
			c.Close()
			c = resumed
		}
	}
	if !follow {
		c.Close()
	}
	defer c.Close()
	out := reading{view: i, start: c.position}
	cut := r.IntN(40)
	for {
		wait := c.Wait()
		finished := h.over()
		frames, err := c.Next()
		out.got = append(out.got, frames...)
		out.end, out.through, out.seam = c.position, c.completeRV, c.inSeam
		if _, out.expired = err.(*cache.ExpiredError); out.expired { //nolint:errorlint // it comes unwrapped
			return out
		}
		if len(frames) == 0 && (finished && c.Lag() == 0 || r.IntN(40) == cut) {
			return out
		}
		if len(frames) == 0 {
			select {
			case <-wait:
			case <-h.ended: // as a deadline would
				runtime.Gosched()
			}
		}
		if r.IntN(10) == 0 {
			h.stall(c.position + uint64(r.IntN(1500)))
		}
	}
}

// stall lasts until the log has grown to a position, or forever.
func (h *history) stall(position uint64) {
	for {
		changed := h.resource.Changed()
		if h.resource.Log().Head() >= position {
			return
		}
		select {
		case <-changed:
		case <-h.ended:
			return
		}
	}
}

func (h *history) over() bool {
	select {
	case <-h.ended:
		return true
	default:
		return false
	}
}

func (h *history) check(r reading) {
	h.Helper()
	for g := len(h.generations) - 1; g >= 0; g-- {
		ref := h.generations[g][r.view]
		if ref.base > r.start {
			continue
		}
		from, to := r.start-ref.base, r.end-ref.base
		if to >= uint64(len(ref.offsets)) {
			h.Fatalf("a reading of generation %d crossed its end", g)
		}
		if want := ref.bytes[ref.offsets[from]:ref.offsets[to]]; !bytes.Equal(r.got, want) {
			h.Fatalf("%v from %d to %d: got\n%q\nwant\n%q", h.views[r.view], r.start, r.end,
				decode(h, r.got, h.views[r.view].encoding), decode(h, want, h.views[r.view].encoding))
		}
		if to > from && (r.through != ref.through[to] || r.seam != ref.seam[to]) {
			h.Fatalf("at %d a client receives %d, %v, want %d, %v", r.end, r.through, r.seam, ref.through[to], ref.seam[to])
		}
		return
	}
	h.Fatalf("a reading begins at %d, before history", r.start)
}

// Whatever a client does and wherever it begins, it receives exactly the log as its selector sees
// it: from its feed, from the log, or from either in turn.
func TestEveryCursorReadsTheLog(t *testing.T) {
	f := func(name string, limits cache.HistoryLimits, voids, lowMemory bool, tested func(*Stats, int) bool) {
		for seed := range *seeds {
			t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) {
				h := newHistory(t, limits)
				if lowMemory {
					h.hub.SetBudget(NewByteBudget(64 << 10))
				}
				ctx, stop := contextFor(t)
				var hub, readers sync.WaitGroup
				hub.Go(func() { _ = h.hub.Run(ctx) })
				results := make([][]reading, 2*len(h.views))
				for i := range results {
					readers.Go(func() {
						r := rand.New(rand.NewPCG(uint64(seed), uint64(i+1)))
						for !h.over() {
							results[i] = append(results[i], h.read(r, i/2, i%2 == 0 || r.IntN(3) > 0))
						}
					})
				}
				r := rand.New(rand.NewPCG(uint64(seed), 0))
				for i := range 2000 {
					h.write(r, voids)
					if lowMemory && i%50 == 25 {
						h.hub.SetLowMemory(i/50%2 == 0)
					}
					for i%50 == 0 && h.hub.Lag() > 0 { // else a machine with one core may see no feeds at all
						runtime.Gosched()
					}
				}
				h.progress()
				for _, reference := range h.generations[len(h.generations)-1] {
					reference.advance(h.world)
				}
				close(h.ended)
				readers.Wait()
				stop()
				hub.Wait()
				readings, expired := 0, 0
				for _, list := range results {
					for _, one := range list {
						h.check(one)
						readings++
						if one.expired {
							expired++
						}
					}
				}
				if !tested(h.hub.Stats(), expired) {
					t.Fatalf("the history does not test what it should: %d readings, %d expired, %d frames of feeds, %d of the log, "+
						"%d times lapped",
						readings, expired, h.hub.Stats().Frames.Load(), h.hub.Stats().ReplayedFrames.Load(),
						h.hub.Stats().FeedOverruns.Load())
				}
				if budget := h.hub.budget; budget != nil && budget.used.Load() != 0 {
					t.Fatalf("%d bytes are left in the budget", budget.used.Load())
				}
				if n := h.hub.Feeds(); n != 0 {
					t.Fatalf("%d feeds are left", n)
				}
			})
		}
	}
	f("feeds are lapped", plenty, false, false, func(s *Stats, expired int) bool {
		return expired == 0 && s.FeedOverruns.Load() > 0 && s.Frames.Load() > 0 && s.ReplayedFrames.Load() > 0
	})
	small := cache.HistoryLimits{HistoryBytes: 200 << 10}
	f("the log is lapped and void", small, true, false, func(s *Stats, expired int) bool {
		return expired > 0 && s.Frames.Load() > 0
	})
	f("memory is short now and then", plenty, false, true, func(s *Stats, expired int) bool {
		return expired == 0 && s.FeedOverruns.Load() > 0 && s.Frames.Load() > 0 && s.ReplayedFrames.Load() > 0
	})
}
