package flowcontrol

import (
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
	most, each   int   // bounds of the queue, in all and of one flow

	narrow  bool // see Gate.Narrow
	held    int64
	waiting int
	flows   map[Flow]*flow        // those that hold or wait
	turns   timerheap.Heap[*flow] // the flows whose first may be admitted as soon as there is room
	stamp   uint64                // of the last turn given
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

func newGateState(limit, share int64, most, each int) *gateState {
	return &gateState{limit: limit, share: share, most: most, each: each, flows: map[Flow]*flow{}}
}

// width is what a request counts as: a request wider than a share could never be admitted.
func (l *gateState) width(asked int64) int64 { return min(max(asked, 1), l.share) }

// narrowFraction is the part of the limit, one in so many, that counts while the gate is narrow.
const narrowFraction = 16

// room reports that there is room for a width.
func (l *gateState) room(width int64) bool {
	if l.narrow && l.held > 0 {
		return l.held+width <= l.limit/narrowFraction
	}
	return l.held+width <= l.limit
}

// shares reports that a flow that holds so much may have a width more: within its share, or since
// no other flow wants it.
func (l *gateState) shares(held, width int64) bool {
	return held+width <= l.share || l.reserve > 0 && l.held+width <= l.limit-l.reserve
}

// take admits a request at once, if there is room and no request that waits precedes it.
func (l *gateState) take(key Flow, width int64) (*flow, bool) {
	f := l.flows[key]
	held := int64(0)
	if f != nil {
		held = f.held
	}
	if !l.room(width) || !l.shares(held, width) || f.waits() > 0 || len(l.turns) > 0 && held >= l.turns[0].held {
		return nil, false
	}
	if f == nil {
		f = l.enter(key)
	}
	f.held += width
	l.held += width
	return f, true
}

// join queues a request, in the place of another if the queue is full; nil if it cannot.
func (l *gateState) join(key Flow, width int64) *waiter {
	f := l.flows[key]
	if l.most == 0 || f.waits() >= l.each {
		return nil
	}
	if l.waiting >= l.most && !l.displace(f) {
		return nil
	}
	if f == nil {
		f = l.enter(key)
	}
	w := &waiter{flow: f, width: width, ready: make(chan struct{})}
	f.waiting = append(f.waiting, w)
	l.waiting++
	if len(f.waiting) == 1 {
		f.turn = l.nextStamp()
	}
	l.place(f)
	return w
}

// displace makes a place for a request of f, which may be nil, by refusing the last request of the
// flow with the longest queue, if that is longer by two at least. Without it, many flows at once
// could fill the queue and shut out all others. It visits every flow, but only when the queue is
// full.
func (l *gateState) displace(f *flow) bool {
	var longest *flow
	for _, g := range l.flows {
		if g.waits() > longest.waits() {
			longest = g
		}
	}
	if longest.waits() < f.waits()+2 {
		return false
	}
	out := longest.waiting[longest.waits()-1]
	l.drop(out)
	out.verdict = displaced
	close(out.ready)
	return true
}

// leave removes a request that waits no longer.
func (l *gateState) leave(w *waiter) {
	l.drop(w)
	l.advance()
}

// release gives back what a request of f held.
func (l *gateState) release(f *flow, width int64) {
	f.held -= width
	l.held -= width
	l.place(f)
	l.advance()
}

// advance admits the next requests as long as there is room.
func (l *gateState) advance() {
	for len(l.turns) > 0 {
		f := l.turns[0]
		w := f.waiting[0]
		if !l.room(w.width) {
			return
		}
		f.held += w.width
		l.held += w.width
		f.turn = l.nextStamp()
		l.drop(w)
		w.verdict = admitted
		close(w.ready)
	}
}

// drop takes a waiter off its flow.
func (l *gateState) drop(w *waiter) {
	f := w.flow
	i := slices.Index(f.waiting, w)
	if i == 0 {
		f.waiting[0] = nil
		f.waiting = f.waiting[1:]
	} else {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	l.waiting--
	l.place(f)
}

// place gives a flow its place among turns, or takes it out, and forgets a flow that neither holds
// nor waits.
func (l *gateState) place(f *flow) {
	if len(f.waiting) > 0 && f.held+f.waiting[0].width <= l.share {
		l.turns.Set(f)
	} else {
		l.turns.Remove(f)
	}
	if f.held == 0 && len(f.waiting) == 0 {
		l.forget(f)
	}
}

func (l *gateState) nextStamp() uint64 {
	l.stamp++
	return l.stamp
}

func (l *gateState) enter(key Flow) *flow {
	var f *flow
	if n := len(l.spare); n > 0 {
		f, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		f = &flow{}
	}
	f.key = key
	l.flows[key] = f
	return f
}

// spareFlowsLimit is how many flows are kept to be used again: so many come and go at once without
// an allocation.
const spareFlowsLimit = 64

func (l *gateState) forget(f *flow) {
	delete(l.flows, f.key)
	if len(l.spare) < spareFlowsLimit {
		*f = flow{}
		l.spare = append(l.spare, f)
	}
}

// DueBefore implements timerheap.Element.
func (f *flow) DueBefore(other *flow) bool {
	if f.held != other.held {
		return f.held < other.held
	}
	return f.turn < other.turn
}
