package watch

import (
	"slices"

	"spillway/internal/clientconn"
	"spillway/internal/timerheap"
)

// slot is a stream without a goroutine: its connection, what it could not send yet, and its places
// among its writer's timers, groups and turns.
type slot struct {
	timerheap.Node // in its writer's timers

	// Static after construction.
	stream *Stream
	writer *writer

	// The writer's: what is sent.
	port      port
	unsent    []byte    // made, and not sent. Other slots may share it: nothing is appended to it
	endReason EndReason // settled: unsent is the last that is sent; empty: it goes on

	// The writer's: how the slot is.
	ended        bool
	checkDue     bool          // something is due, or poke was called
	due          monotonicTime // when something is next
	parked       bool          // the socket is full
	lastProgress monotonicTime // when the client last took a byte, once it was parked or paused

	// The writer's: its place in the group that waits for the same signal.
	group      *feedGroup // nil: it is in none
	groupIndex int        // in group.slots

	// The writer's: its place among the slots that wait for a turn.
	owner      *ownerTurns // nil: it has had no turn yet
	queued     bool        // it waits for its turn
	nextQueued *slot       // the owner's slot behind it; nil: it is the last

	// Guarded by writer.mu.
	poked bool // it is in writer.mu.slots
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

// deferUnsent keeps what is not sent yet during a pause. Meanwhile the client does not count as
// stalled. It reports false once the deadline of the watch has passed.
func (s *slot) deferUnsent() bool {
	s.lastProgress, s.checkDue = now(), false
	if s.lastProgress >= s.stream.deadline {
		return false
	}
	s.dueAt(s.stream.deadline)
	return true
}

// fill gets what is sent next: what the stream has, or its end.
func (s *slot) fill() {
	run, reason, err := s.stream.pullRun(s.checkDue)
	if reason != "" || err != nil {
		last, final := s.stream.lastFrames(reason, err)
		s.unsent, s.endReason = slices.Concat(run, last), final
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

// park waits for room in the socket, as long as the client makes progress: any byte will do,
// because a cursor pins nothing (design D10).
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
