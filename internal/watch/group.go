package watch

import (
	"math/rand/v2"
	"sync/atomic"

	"spillway/internal/ring"
)

// group is the slots of a writer that wait for the same signal: those of one feed, or those that
// read a log. One wake reaches all of them. Its cost to the caller does not depend on their number.
type group struct {
	// Static after construction.
	writer *writer
	signal *ring.Signal

	woken atomic.Bool // since the writer last looked

	// The writer's.
	slots []*slot
}

// Wake implements ring.Waker.
func (g *group) Wake() {
	if g.woken.CompareAndSwap(false, true) {
		g.writer.groupWoken(g)
	}
}

// add puts a slot into the group.
func (g *group) add(s *slot) {
	s.group, s.index = g, len(g.slots)
	g.slots = append(g.slots, s)
}

// remove takes a slot out.
func (g *group) remove(s *slot) {
	last := len(g.slots) - 1
	moved := g.slots[last]
	g.slots[s.index], moved.index = moved, s.index
	g.slots[last] = nil
	g.slots = g.slots[:last]
	s.group = nil
}

// all calls f for each slot. It begins at a random one, since the first gets its event earliest.
func (g *group) all(f func(*slot)) {
	if len(g.slots) == 0 {
		return
	}
	first := rand.IntN(len(g.slots)) // #nosec G404 -- spreads work
	for _, s := range g.slots[first:] {
		f(s)
	}
	for _, s := range g.slots[:first] {
		f(s)
	}
}
