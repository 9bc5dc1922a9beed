package watch

import (
	"math/rand/v2"
	"sync/atomic"

	"spillway/internal/clientconn"
	"spillway/internal/ring"
	"spillway/internal/timerheap"
)

// slot is a stream without a goroutine: its connection, what it could not send yet, and its places
// among its writer's timers, groups and turns.
type slot struct {
	timerheap.Node // in its writer's timers

	// Static after construction.
	stream *Stream
	writer *writer

	// The writer's.
	port         port
	unsent       []byte    // made, and not sent; bytes that are shared unless the cursor reads the log
	endReason    EndReason // settled: unsent is the last that is sent; empty: it goes on
	ended        bool
	checkDue     bool          // something is due, or poke was called
	due          monotonicTime // when something is next
	parked       bool          // the socket is full
	lastProgress monotonicTime // when the client last took a byte, once it was parked or paused
	group        *feedGroup
	index        int         // in the group
	owner        *ownerTurns // nil: it has had no turn yet
	queued       bool        // in the owner's turns
	next         *slot       // behind it there

	// Guarded by writer.mu.
	poked bool
}

// dueAt sets when the slot is due.
func (s *slot) dueAt(at monotonicTime) {
	s.due = at
	s.writer.timers.Set(s)
}

// DueBefore implements timerheap.Element.
func (s *slot) DueBefore(other *slot) bool { return s.due < other.due }

// poke makes the writer look at the slot. Any goroutine may call it.
func (s *slot) poke() { s.writer.addPoked(s) }

// hasUnsent reports that the socket has yet to take what was made for it.
func (s *slot) hasUnsent() bool { return len(s.unsent) > 0 || s.port.heldBytes() > 0 }

// hasToEnd reports that the end is settled, and that nothing is left to be sent before it.
func (s *slot) hasToEnd() bool { return s.endReason != "" && (!s.endReason.Clean() || !s.hasUnsent()) }

// hasMore reports that another turn would find something to do at once.
func (s *slot) hasMore() bool {
	return len(s.unsent) > 0 || s.checkDue || s.stream.cursor.Lag() > 0 || !s.stream.cursor.IsLive()
}

// abruptReason is the reason of a slot that has to end at once: its client is gone, or is not
// allowed to get what it has not taken yet. Empty: it goes on, or ends cleanly.
func (s *slot) abruptReason() EndReason {
	if !s.checkDue {
		return ""
	}
	if reason := s.stream.Reason(); !reason.Clean() || reason.isRevoked() && s.hasUnsent() {
		return reason
	}
	return ""
}

// deferUnsent keeps what is not sent yet during a pause, until the deadline of the watch
// at the latest. Meanwhile the client does not count as stalled.
func (s *slot) deferUnsent() {
	s.lastProgress, s.checkDue = now(), false
	if s.lastProgress >= s.stream.deadline {
		s.stream.out.cut()
		s.writer.endSlot(s, EndReviewTimeout)
		return
	}
	s.dueAt(s.stream.deadline)
}

// fill gets what is sent next: what the stream has, or its end.
func (s *slot) fill() {
	run, reason, err := s.stream.pullRun(s.checkDue)
	if reason != "" || err != nil {
		last, final := s.stream.lastFrames(reason, err)
		s.unsent, s.endReason = append(run, last...), final
		return
	}
	s.unsent = run
	if s.checkDue {
		s.checkDue = s.stream.Reason() != "" || s.stream.nextDue() <= now()
		s.dueAt(s.stream.nextDue())
	}
}

// send sends a turn's worth of what there is. It reports whether all that was to be sent this time
// has gone.
func (s *slot) send() (gone bool, err error) {
	piece := s.unsent[:min(len(s.unsent), turnSize)]
	n, moved, err := s.port.send(piece)
	s.stream.sentBytes.Add(int64(n))
	s.unsent = s.unsent[n:]
	switch {
	case err != nil:
		return false, err
	case n < len(piece) || s.port.heldBytes() > 0:
		return false, s.park(moved)
	}
	if s.parked {
		s.unpark()
		s.checkDue = true
	}
	return true, nil
}

// park waits for room in the socket, as long as the client makes progress: any byte will do, since
// a cursor pins nothing (design D10).
func (s *slot) park(moved bool) error {
	at, opts := now(), &s.writer.manager.opts
	stall := opts.Eviction.StallTimeout(opts.StallTimeout)
	if moved || !s.parked {
		s.lastProgress = at
	}
	if !s.parked {
		s.parked = true
		s.writer.manager.opts.Eviction.Park()
	}
	s.stream.noteBlocked(len(s.unsent)+s.port.heldBytes(), s.lastProgress)
	s.port.out.park(s.poke)
	if stall <= 0 {
		return nil
	}
	if at.since(s.lastProgress) >= stall {
		return clientconn.ErrStalled
	}
	// Look again without an event of the socket, too: the kernel reports room late if the client
	// takes little at a time.
	s.dueAt(min(s.lastProgress.after(stall), at.after(stall/clientconn.StallChecks)))
	return nil
}

// unpark ends what park began.
func (s *slot) unpark() {
	if s.parked {
		s.parked = false
		s.stream.noteBlocked(0, 0)
		s.writer.manager.opts.Eviction.Unpark()
	}
}

// feedGroup is the slots of a writer that wait for the same signal: those of one feed, or those
// that read a log. One wake reaches all of them. Its cost to the caller does not depend on their
// number.
type feedGroup struct {
	// Static after construction.
	writer *writer
	signal *ring.Signal

	woken atomic.Bool // since the writer last looked

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
	s.group, s.index = g, len(g.slots)
	g.slots = append(g.slots, s)
}

// remove takes a slot out.
func (g *feedGroup) remove(s *slot) {
	last := len(g.slots) - 1
	moved := g.slots[last]
	g.slots[s.index], moved.index = moved, s.index
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
