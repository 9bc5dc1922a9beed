package flowcontrol

import (
	"container/heap"
	"slices"
)

// line is who holds what of a gate and who waits for it: all of the gate but its lock, its clock
// and its goroutines, so that it can be tried out move by move.
//
// Whose turn is next? Of those who wait, the flow that holds least; among equals, the one whose
// last turn is longest ago. That is max-min fairness of what is held, and not of how often somebody
// was let in: a flow whose requests last ten times as long as another's has no more of the gate for
// it. Inside a flow, first come is first served. Whose turn it is waits until there is room for its
// width, and all others behind it do, since narrow requests would otherwise keep wide ones out for
// ever.
type line struct {
	limit, share int64 // the most that is held, by all and by one flow; share <= limit
	reserve      int64 // what remains free when a flow exceeds its share; 0: none does
	most, each   int   // how many may wait, in all and of one flow

	narrow  bool // see Gate.Narrow
	held    int64
	waiting int
	flows   map[Flow]*flow // those that hold or wait
	turns   turns          // the flows whose first may be let in as soon as there is room
	stamp   uint64         // of the last turn given
	spare   []*flow        // to be used again
}

// flow is what a flow holds, and who waits for more.
type flow struct {
	key      Flow
	held     int64
	waiting  []*waiter // first come first
	turn     uint64    // when it began to wait, or had its last turn: smaller is earlier
	place    int       // among turns; -1: nobody waits, or it has its share
	pressure pressure  // of its own refusals
}

// waits is how many of a flow wait; of nil, none.
func (f *flow) waits() int {
	if f == nil {
		return 0
	}
	return len(f.waiting)
}

// waiter is one who waits.
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
	displaced // by somebody whose flow had fewer waiting
)

func newLine(limit, share int64, most, each int) *line {
	return &line{limit: limit, share: share, most: most, each: each, flows: map[Flow]*flow{}}
}

// width is what a request counts as: what is wider than a share could never be let in.
func (l *line) width(asked int64) int64 { return min(max(asked, 1), l.share) }

// narrowPart is the part of the limit, one in so many, that counts while the line is narrow.
const narrowPart = 16

// room reports that there is room for a width.
func (l *line) room(width int64) bool {
	if l.narrow && l.held > 0 {
		return l.held+width <= l.limit/narrowPart
	}
	return l.held+width <= l.limit
}

// shares reports that a flow that holds so much may have a width more: within its share, or since
// no other flow wants it.
func (l *line) shares(held, width int64) bool {
	return held+width <= l.share || l.reserve > 0 && l.held+width <= l.limit-l.reserve
}

// take lets a request in at once, if there is room and nobody waits who is to be let in first.
func (l *line) take(key Flow, width int64) (*flow, bool) {
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

// join puts a request in line, in the place of another if it has to; nil if there is no place for
// it.
func (l *line) join(key Flow, width int64) *waiter {
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

// displace makes a place for one of f, which may be nil, by sending away the last of the flow that
// has most waiting, if that has at least two more. Without it, many flows at once could shut all
// others out. It looks at every flow, but only of a line that is full.
func (l *line) displace(f *flow) bool {
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

// leave takes somebody out of line who waits no longer.
func (l *line) leave(w *waiter) {
	l.drop(w)
	l.advance()
}

// release gives back what one of f held.
func (l *line) release(f *flow, width int64) {
	f.held -= width
	l.held -= width
	l.place(f)
	l.advance()
}

// advance lets in whose turn it is, as long as there is room.
func (l *line) advance() {
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
func (l *line) drop(w *waiter) {
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
func (l *line) place(f *flow) {
	due := len(f.waiting) > 0 && f.held+f.waiting[0].width <= l.share
	switch {
	case due && f.place < 0:
		heap.Push(&l.turns, f)
	case due:
		heap.Fix(&l.turns, f.place)
	case f.place >= 0:
		heap.Remove(&l.turns, f.place)
	}
	if f.held == 0 && len(f.waiting) == 0 {
		l.forget(f)
	}
}

func (l *line) nextStamp() uint64 {
	l.stamp++
	return l.stamp
}

func (l *line) enter(key Flow) *flow {
	var f *flow
	if n := len(l.spare); n > 0 {
		f, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		f = &flow{place: -1}
	}
	f.key = key
	l.flows[key] = f
	return f
}

// spareMost is how many flows are kept to be used again: so many come and go at once without an
// allocation.
const spareMost = 64

func (l *line) forget(f *flow) {
	delete(l.flows, f.key)
	if len(l.spare) < spareMost {
		*f = flow{place: -1}
		l.spare = append(l.spare, f)
	}
}

// turns is a heap of the flows that are to be let in, the next one first.
type turns []*flow

// Len implements heap.Interface.
func (t turns) Len() int { return len(t) }

// Less implements heap.Interface.
func (t turns) Less(i, j int) bool {
	if t[i].held != t[j].held {
		return t[i].held < t[j].held
	}
	return t[i].turn < t[j].turn
}

// Swap implements heap.Interface.
func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push implements heap.Interface.
func (t *turns) Push(x any) {
	f := x.(*flow)
	f.place = len(*t)
	*t = append(*t, f)
}

// Pop implements heap.Interface.
func (t *turns) Pop() any {
	last := len(*t) - 1
	f := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	f.place = -1
	return f
}
