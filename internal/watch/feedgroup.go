package watch

import (
	"math/rand/v2"
	"sync/atomic"

	"spillway/internal/ring"
)

// feedGroup is the slots of a writer that wait for the same signal: those of one feed, or those
// that read a log. One wake reaches all of them. Its cost to the caller does not depend on their
// number.
type feedGroup struct {
	// Static after construction.
	writer *writer
	signal *ring.Signal

	woken atomic.Bool // it is in writer.mu.groups

	// The writer's.
	slots []*slot
}

// Wake implements ring.Waker.
func (g *feedGroup) Wake() {
	if g.woken.CompareAndSwap(false, true) {
		g.writer.addWoken(g)
	}
}

// add puts a slot into the group.
func (g *feedGroup) add(s *slot) {
	s.group, s.groupIndex = g, len(g.slots)
	g.slots = append(g.slots, s)
}

// remove takes a slot out of the group. The last slot takes its place.
func (g *feedGroup) remove(s *slot) {
	last := len(g.slots) - 1
	moved := g.slots[last]
	g.slots[s.groupIndex], moved.groupIndex = moved, s.groupIndex
	g.slots[last] = nil
	g.slots = g.slots[:last]
	s.group = nil
}

// each calls f for each slot. It begins at a random one, because the first gets its event earliest.
func (g *feedGroup) each(f func(*slot)) {
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
