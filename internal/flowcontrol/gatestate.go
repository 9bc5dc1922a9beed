package flowcontrol

import (
	"math"
	"slices"

	"spillway/internal/timerheap"
)

// gateState is the state of a gate: what each flow holds, and its queue. It has no lock, clock or
// goroutine, so that tests can make one move at a time.
//
// The next request to be admitted is of the flow that holds least; among equals, of the flow whose
// last turn is longest ago. That is max-min fairness of what is held, not of the number of
// admissions: a flow whose requests last ten times as long as another's holds no more for it. A
// flow is first in, first out. The next request waits until there is room for its width, and so do
// all behind it: otherwise narrow requests would starve wide ones.
type gateState struct {
	limit, share int64 // the most that is held, by all and by one flow; share <= limit
	reserve      int64 // what remains free when a flow exceeds its share; 0: none does
	// The most that wait, of all and of one flow. If either is 0 there is no queue.
	maxWaiting, maxFlowWaiting int

	narrow  bool // see Gate.Narrow
	held    int64
	waiting int
	flows   map[Flow]*flow        // those that hold or wait
	turns   timerheap.Heap[*flow] // the flows whose first may be admitted as soon as there is room
	stamp   uint64                // of the last turn that was given
	spare   []*flow               // to be used again
}

// flow is what a flow holds, and its queue.
type flow struct {
	timerheap.Node // among turns, unless its queue is empty or it has its share

	key      Flow
	held     int64
	waiting  []*waiter // first come first
	turn     uint64    // when it began to wait, or had its last turn: smaller is earlier
	pressure pressure  // of its own refusals
}

// waits is the length of a flow's queue; of nil, 0.
func (f *flow) waits() int {
	if f == nil {
		return 0
	}
	return len(f.waiting)
}

// waiter is a request that waits.
type waiter struct {
	flow    *flow
	width   int64
	verdict verdict
	ready   chan struct{} // closed with the verdict
}

// verdict is what has become of a waiter.
type verdict int

const (
	undecided verdict = iota
	admitted
	displaced // by a request of a flow with a shorter queue
)

// unlimited is the limit of a gate that only limits shares.
const unlimited = math.MaxInt64

func newGateState(o Options) *gateState {
	s := &gateState{
		limit: o.Limit, share: o.Share, reserve: o.Reserve, maxWaiting: o.Waiting, maxFlowWaiting: o.WaitingEach,
		flows: map[Flow]*flow{},
	}
	if s.limit <= 0 {
		s.limit = unlimited
	}
	if s.share <= 0 || s.share > s.limit {
		s.share = s.limit
	}
	return s
}

func (s *gateState) hasQueue() bool { return s.maxWaiting > 0 && s.maxFlowWaiting > 0 }

// width is what a request counts as: a request wider than a share could never be admitted.
func (s *gateState) width(asked int64) int64 { return min(max(asked, 1), s.share) }

// narrowFraction is the part of the limit, one in so many, that counts while the gate is narrow.
const narrowFraction = 16

// hasRoom reports that there is room for a width.
func (s *gateState) hasRoom(width int64) bool {
	if s.narrow && s.held > 0 {
		return s.held+width <= s.limit/narrowFraction
	}
	return s.held+width <= s.limit
}

// isInShare reports that a flow that holds so much may have a width more: within its share, or
// beyond it while the reserve remains free.
func (s *gateState) isInShare(held, width int64) bool {
	return held+width <= s.share || s.reserve > 0 && s.held+width <= s.limit-s.reserve
}

// take admits a request at once, if there is room and no request that waits precedes it.
func (s *gateState) take(key Flow, width int64) (*flow, bool) {
	f := s.flows[key]
	held := int64(0)
	if f != nil {
		held = f.held
	}
	if !s.hasRoom(width) || !s.isInShare(held, width) || f.waits() > 0 || len(s.turns) > 0 && held >= s.turns[0].held {
		return nil, false
	}
	if f == nil {
		f = s.enter(key)
	}
	f.held += width
	s.held += width
	return f, true
}

// join queues a request, in the place of another if the queue is full; nil if it cannot.
func (s *gateState) join(key Flow, width int64) *waiter {
	f := s.flows[key]
	if !s.hasQueue() || f.waits() >= s.maxFlowWaiting {
		return nil
	}
	if s.waiting >= s.maxWaiting && !s.displace(f) {
		return nil
	}
	if f == nil {
		f = s.enter(key)
	}
	w := &waiter{flow: f, width: width, ready: make(chan struct{})}
	f.waiting = append(f.waiting, w)
	s.waiting++
	if len(f.waiting) == 1 {
		f.turn = s.nextStamp()
	}
	s.place(f)
	return w
}

// displace makes a place for a request of f, which may be nil, by refusing the last request of the
// flow with the longest queue, if that is longer by two at least. Without it, many flows at once
// could fill the queue and shut out all others. It visits every flow, but only when the queue is
// full.
func (s *gateState) displace(f *flow) bool {
	var longest *flow
	for _, g := range s.flows {
		if g.waits() > longest.waits() {
			longest = g
		}
	}
	if longest.waits() < f.waits()+2 {
		return false
	}
	out := longest.waiting[longest.waits()-1]
	s.drop(out)
	out.verdict = displaced
	close(out.ready)
	return true
}

// leave removes a request that waits no longer.
func (s *gateState) leave(w *waiter) {
	s.drop(w)
	s.advance()
}

// release gives back what a request of f held.
func (s *gateState) release(f *flow, width int64) {
	f.held -= width
	s.held -= width
	s.place(f)
	s.advance()
}

// advance admits the next requests as long as there is room.
func (s *gateState) advance() {
	for len(s.turns) > 0 {
		f := s.turns[0]
		w := f.waiting[0]
		if !s.hasRoom(w.width) {
			return
		}
		f.held += w.width
		s.held += w.width
		f.turn = s.nextStamp()
		s.drop(w)
		w.verdict = admitted
		close(w.ready)
	}
}

// drop takes a waiter off its flow.
func (s *gateState) drop(w *waiter) {
	f := w.flow
	i := slices.Index(f.waiting, w)
	if i == 0 {
		f.waiting[0] = nil
		f.waiting = f.waiting[1:]
	} else {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	s.waiting--
	s.place(f)
}

// place gives a flow its place among turns, or takes it out, and forgets a flow that neither holds
// nor waits.
func (s *gateState) place(f *flow) {
	if len(f.waiting) > 0 && f.held+f.waiting[0].width <= s.share {
		s.turns.Set(f)
	} else {
		s.turns.Remove(f)
	}
	if f.held == 0 && len(f.waiting) == 0 {
		s.forget(f)
	}
}

func (s *gateState) nextStamp() uint64 {
	s.stamp++
	return s.stamp
}

func (s *gateState) enter(key Flow) *flow {
	var f *flow
	if n := len(s.spare); n > 0 {
		f, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		f = &flow{}
	}
	f.key = key
	s.flows[key] = f
	return f
}

// spareFlowsLimit is how many flows are kept to be used again: so many come and go at once without
// an allocation.
const spareFlowsLimit = 64

func (s *gateState) forget(f *flow) {
	delete(s.flows, f.key)
	if len(s.spare) < spareFlowsLimit {
		*f = flow{}
		s.spare = append(s.spare, f)
	}
}

// DueBefore implements timerheap.Element.
func (f *flow) DueBefore(other *flow) bool {
	if f.held != other.held {
		return f.held < other.held
	}
	return f.turn < other.turn
}
