package watch

import (
	"context"
	"sync"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/rawio"
	"spillway/internal/ring"
	"spillway/internal/timerheap"
	"spillway/internal/watchdog"
)

// writer owns a shard of slots. It is the only goroutine that sends to the sockets of HTTP/1.1
// watches; frames for an HTTP/2 stream go to the outbox of its connection, which the writer flushes
// (h2.Conn.Flush). It never waits for a client: a socket takes what it has room for, and the slot
// of one that is full is parked until there is more, or until its client has stalled.
//
// A slot has its turn when its signal woke its group, when there is room again, when something is
// due or asked for, when it had more than one turn's worth, or when it has read the log and may go
// back to its feed. Owners of watches take turns, and the slots of one owner in that order. What
// piles up while a slot waits for its turn is one send. An idle slot costs nothing, not even a
// look.
type writer struct {
	// Static after construction.
	manager    *Manager
	wakeCh     chan struct{} // has a value when mu's lists are not empty
	openSender func(*ConnSink) nonblockingSender

	// The writer's goroutine's.
	groups     map[*ring.Signal]*feedGroup
	timers     timerheap.Heap[*slot] // all slots, by when a bookmark, a deadline or a check is due
	queue      turnQueue
	sealed     clientconn.SealedRecords // of the current turn
	unflushed  flushQueue
	delivering bool          // CPULimiter.BeginDelivering was called last, not EndDelivering
	loop       watchdog.Loop // rests while nothing is to be delivered
	spare      struct {      // what mu's lists were before, to be used again
		slots  []*slot
		groups []*feedGroup
	}

	mu struct {
		sync.Mutex
		slots  []*slot      // poked since the writer last looked
		groups []*feedGroup // woken since then
		closed bool
	}
}

const (
	// turnSize is the most that is sent before the next slot has its turn: four TLS records.
	turnSize = clientconn.OfferBytesLimit
	// turnsPerDrain is how many turns the writer gives before it drains wake-ups again.
	turnsPerDrain = 64
)

func newWriter(m *Manager) *writer {
	sender := rawio.NewSender()
	return &writer{
		manager: m, wakeCh: make(chan struct{}, 1), groups: map[*ring.Signal]*feedGroup{},
		queue: newTurnQueue(), unflushed: newFlushQueue(),
		openSender: func(c *ConnSink) nonblockingSender { return openSocket(c, sender) },
	}
}

// adoptStream takes over a stream that is past its initial events. It reports false if its sink has
// no port, or if the writer has ended.
func (w *writer) adoptStream(st *Stream) bool {
	port, ok := st.out.port(w)
	if !ok {
		return false
	}
	s := &slot{stream: st, writer: w, port: port}
	st.cursor.LimitWork()
	st.scheduleBookmark(now())
	st.releaseContext()
	st.slot.Store(s)
	st.markLive()
	return w.addPoked(s)
}

// addPoked makes the writer look at a slot. It reports false if the writer has ended.
func (w *writer) addPoked(s *slot) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		return false
	}
	if !s.poked {
		s.poked = true
		w.mu.slots = append(w.mu.slots, s)
		w.wake()
	}
	return true
}

// addWoken makes the writer look at the slots of a group.
func (w *writer) addWoken(g *feedGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.groups = append(w.mu.groups, g)
	w.wake()
}

// wake makes run drain the wake-ups.
func (w *writer) wake() {
	select {
	case w.wakeCh <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends, which ends the streams that are left.
func (w *writer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer w.loop.Rest()
	for {
		w.loop.Work()
		w.drainWakeups()
		w.setDelivering(!w.queue.isEmpty())
		if w.runTurns() {
			continue
		}
		w.unflushed.flush()
		w.setDelivering(false)
		if s := w.timers.First(); s != nil {
			timer.Reset(s.due.timeLeft())
		} else {
			timer.Stop()
		}
		w.loop.Rest()
		select {
		case <-w.wakeCh:
		case <-timer.C:
		case <-ctx.Done():
			w.loop.Work()
			w.abortSlots()
			return
		}
	}
}

// setDelivering makes large answers yield while something is pending.
func (w *writer) setDelivering(pending bool) {
	if w.delivering == pending {
		return
	}
	w.delivering = pending
	if cpu := w.manager.opts.CPU; pending {
		cpu.BeginDelivering()
	} else {
		cpu.EndDelivering()
	}
}

// drainWakeups queues the slots that were poked, woken or are due.
func (w *writer) drainWakeups() {
	w.mu.Lock()
	slots, groups := w.mu.slots, w.mu.groups
	w.mu.slots, w.mu.groups = w.spare.slots[:0], w.spare.groups[:0]
	for _, s := range slots {
		s.poked = false
	}
	w.mu.Unlock()
	for _, s := range slots {
		s.checkDue = true
		w.enqueue(s)
	}
	for _, g := range groups {
		g.woken.Store(false) // before the state is looked at
		g.each(func(s *slot) {
			if !s.parked {
				w.enqueue(s)
			}
		})
	}
	clear(slots)
	clear(groups)
	w.spare.slots, w.spare.groups = slots, groups
	present := now()
	for s := w.timers.First(); s != nil && s.due <= present; s = w.timers.First() {
		s.checkDue = true
		s.dueAt(present.after(time.Hour)) // its turn sets when it is due again
		w.enqueue(s)
	}
}

// enqueue gives a slot a turn.
func (w *writer) enqueue(s *slot) {
	if s.ended {
		return
	}
	if s.owner == nil {
		w.queue.join(s, s.stream.owner)
	}
	w.queue.push(s)
}

// runTurns gives some slots their turns, and reports whether others are waiting.
func (w *writer) runTurns() bool {
	for range turnsPerDrain {
		if w.queue.isEmpty() {
			return false
		}
		w.takeTurn(w.queue.pop())
		if w.unflushed.isFull() {
			w.unflushed.flush()
		}
	}
	if w.unflushed.isOverdue() {
		w.unflushed.flush()
	}
	return !w.queue.isEmpty()
}

// takeTurn sends once to the client of a slot: what is left of before, or what its stream has next.
// A panic ends that stream alone.
func (w *writer) takeTurn(s *slot) {
	defer w.recoverTurn(s)
	if s.ended {
		return
	}
	if reason := s.abruptReason(); reason != "" {
		if reason.Clean() {
			s.stream.out.cut() // without the end that the reason has otherwise
		}
		w.endSlot(s, reason)
		return
	}
	if s.hasUnsent() {
		if s.stream.pause.isPaused() {
			if !s.deferUnsent() {
				s.stream.out.cut() // what is not sent may not be sent any more
				w.endSlot(s, EndReviewTimeout)
			}
			return
		}
	} else if s.endReason == "" {
		w.refill(s)
	}
	switch {
	case s.hasToEnd():
		w.endSlot(s, s.endReason)
	case s.hasUnsent():
		w.sendTurn(s)
	case s.stream.pausedUntil == nil && s.stream.cursor.HasMore():
		w.enqueue(s)
	}
}

// recoverTurn ends a stream whose turn panicked.
func (w *writer) recoverTurn(s *slot) {
	if p := recover(); p != nil {
		w.manager.opts.Panicked(p)
		w.endSlot(s, EndAborted)
	}
}

// refill gets what a slot sends next, and keeps the slot with its cursor's signal.
func (w *writer) refill(s *slot) {
	if s.fill(); s.endReason == "" {
		w.regroup(s)
	}
}

// sendTurn sends a turn's worth. The slot then has ended, is parked, or gets another turn if it has
// more.
func (w *writer) sendTurn(s *slot) {
	switch gone, err := s.send(); {
	case err != nil:
		w.endSlot(s, s.stream.endReasonOf(err))
	case !gone: // it is parked
	case s.hasToEnd():
		w.endSlot(s, s.endReason)
	case s.hasMore():
		w.enqueue(s)
	}
}

// regroup puts a slot into the group of its cursor's signal. A slot that joins a group gets another
// turn, because the signal may have woken the group before.
func (w *writer) regroup(s *slot) {
	signal := s.stream.cursor.Signal()
	if s.group != nil && s.group.signal == signal {
		return
	}
	w.leaveGroup(s)
	g := w.groups[signal]
	if g == nil {
		g = &feedGroup{writer: w, signal: signal}
		w.groups[signal] = g
		signal.Subscribe(g)
	}
	g.add(s)
	w.enqueue(s)
}

// leaveGroup takes a slot out of its group; the last one ends it.
func (w *writer) leaveGroup(s *slot) {
	g := s.group
	if g == nil {
		return
	}
	if g.remove(s); len(g.slots) == 0 {
		delete(w.groups, g.signal)
		g.signal.Unsubscribe(g)
	}
}

// endSlot removes a slot whose stream has ended.
func (w *writer) endSlot(s *slot, reason EndReason) {
	if s.ended {
		return
	}
	s.ended = true
	s.unpark()
	w.leaveGroup(s)
	w.timers.Remove(s)
	w.queue.leave(s)
	s.unsent, s.port.secure = nil, nil
	s.stream.Cleanup(reason)
}

// abortSlots ends all streams, and takes no more.
func (w *writer) abortSlots() {
	w.mu.Lock()
	w.mu.closed = true
	w.mu.Unlock()
	w.drainWakeups()
	for !w.queue.isEmpty() { // some have never had a turn
		w.abortSlot(w.queue.pop())
	}
	for s := w.timers.First(); s != nil; s = w.timers.First() {
		w.abortSlot(s)
	}
}

func (w *writer) abortSlot(s *slot) {
	reason := s.stream.Reason()
	if reason.Clean() {
		reason = EndAborted
	}
	w.endSlot(s, reason)
}
