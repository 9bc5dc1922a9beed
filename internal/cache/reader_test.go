package cache

import (
	"math/rand/v2"
	"sync"
	"testing"

	"spillway/internal/object"
)

// reader follows a resource as a stream does: from a snapshot or a resourceVersion, then along the
// log.
type reader struct {
	t       *testing.T
	r       *Resource
	rng     *rand.Rand
	state   state
	pos     uint64
	through uint64
	lapped  int
	checked int
}

// start takes a new place, each time in another way.
func (c *reader) start() {
	s := c.r.Snapshot()
	if old, err := c.r.SnapshotAt(s.RV - uint64(c.rng.IntN(4))); c.rng.IntN(2) == 0 && err == nil {
		s = old
	}
	c.state, c.pos, c.through = stateOf(s), s.Next, s.RV
}

// resume finds the place again by the resourceVersion alone, as a client does after a lost
// connection: it may get the deletions of a seam again.
func (c *reader) resume(generation uint64) {
	pos, err := c.r.Log().Find(c.through)
	if err != nil || c.r.Generation() != generation {
		return // in another history the same resourceVersion is another place
	}
	if pos > c.pos {
		c.t.Errorf("resume at %d leads to %d, the reader was at %d", c.through, pos, c.pos)
	}
	c.pos = pos
}

// follow reads up to the head, and false if the log has moved past the reader.
func (c *reader) follow() bool {
	for c.pos < c.r.Log().Head() {
		e, ok := c.r.Log().EntryAt(c.pos)
		if !ok {
			c.lapped++
			return false
		}
		if e.RV < c.through || e.CompleteRV < c.through {
			c.t.Errorf("position %d: %s, complete through %d, after %d", c.pos, describe(e), e.CompleteRV, c.through)
			return false
		}
		c.pos++
		c.state.apply(&e.Event)
		if !e.Seam.IsOpen() {
			c.through = e.CompleteRV
		}
	}
	return true
}

// run follows until the applier has finished, comparing with every snapshot that it meets.
func (c *reader) run(finished <-chan struct{}) {
	c.start()
	for !c.t.Failed() {
		changed := c.r.Changed()
		if !c.follow() {
			c.start()
			continue
		}
		s := c.r.Snapshot()
		if s.Next == c.pos {
			c.checked++
			if got, want := c.state.String(), stateOf(s).String(); got != want || s.RV != c.through {
				c.t.Errorf("at position %d, %d: the reader has %s\nthe snapshot, %d, has %s", c.pos, c.through, got, s.RV, want)
			}
			if c.rng.IntN(4) == 0 {
				c.resume(s.generation)
				continue
			}
		}
		select {
		case <-changed:
		case <-finished:
			if c.pos == c.r.Snapshot().Next {
				return
			}
		}
	}
}

// However the API server's changes, gaps, rewritten history and our own trims fall: a reader that
// takes a snapshot and then reads the log has the same state as a reader that takes a snapshot
// later.
func TestConcurrentReaders(t *testing.T) {
	const readers, changes = 6, 6000
	rng := rand.New(rand.NewPCG(1, 3))
	r := newPods(HistoryLimits{HistoryBytes: 12000})
	_ = r.Replace(randomList(t, rng, state{}, 100, 120), 120)
	var all []*reader
	var running sync.WaitGroup
	finished := make(chan struct{})
	for i := range readers {
		c := &reader{t: t, r: r, rng: rand.New(rand.NewPCG(uint64(i), 4))}
		all = append(all, c)
		running.Go(func() { c.run(finished) })
	}
	for range changes {
		through := r.CompleteRV()
		switch n := rng.IntN(60); {
		case n == 0: // restored from a backup: another history
			l := max(through-uint64(rng.IntN(50)), 120)
			_ = r.Replace(randomList(t, rng, state{}, l-20, l), l)
		case n < 4:
			l := through + 1 + uint64(rng.IntN(10))
			_ = r.Replace(randomList(t, rng, stateOf(r.Snapshot()), through, l), l)
		default:
			randomChange(t, rng, r)
		}
	}
	close(finished)
	r.changed.Wake()
	running.Wait()
	checked, lapped := 0, 0
	for _, c := range all {
		checked, lapped = checked+c.checked, lapped+c.lapped
	}
	t.Logf("%d comparisons, lapped %d times, generation %d", checked, lapped, r.Generation())
	if checked < readers {
		t.Errorf("%d comparisons by %d readers", checked, readers)
	}
}

// A reader at the head learns that history is void, even at the very moment it happens.
func TestVoidIsNeverReadAsProgress(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11"), 20)
	finished := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			pos := r.Snapshot().Next
			for pos >= r.Log().Head() {
				select {
				case <-finished:
					return
				default:
				}
			}
			if e, ok := r.Log().EntryAt(pos); ok {
				t.Errorf("position %d: %s", pos, describe(e))
				return
			}
		}
	})
	lists := [2][]*object.Object{objects(t, "a=b@12"), objects(t, "a=a@11")}
	for i := range 20000 {
		_ = r.Replace(lists[i%2], 20)
	}
	close(finished)
	running.Wait()
}

// A state that was requested while history became void belongs to neither past.
func TestAnExactStateIsNotMixedOfTwoHistories(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11"), 20)
	before := r.Snapshot()
	_ = r.Replace(objects(t, "b=b@12"), 15)
	r.Progress(30, r.Generation())
	if s, err := r.rewindSnapshot(before, 20); err == nil {
		t.Errorf("the state at 20 is %s, from position %d", stateOf(s), s.Next)
	}
	if s, err := r.SnapshotAt(20); err != nil || stateOf(s).String() != "b=b@12" {
		t.Errorf("the state at 20 is %v, %v", s, err)
	}
}
