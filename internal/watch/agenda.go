package watch

import "container/heap"

// agenda is the slots of a writer, all of them, by when something is due there. It stands for a
// timer each.
type agenda []*slot

// set says when a slot is due; a new one is added.
func (a *agenda) set(s *slot, at moment) {
	s.due = at
	if s.place < 0 {
		heap.Push(a, s)
		return
	}
	heap.Fix(a, s.place)
}

// remove forgets a slot.
func (a *agenda) remove(s *slot) {
	if s.place >= 0 {
		heap.Remove(a, s.place)
	}
}

// next is when the first slot is due, or false if there are none.
func (a agenda) next() (moment, bool) {
	if len(a) == 0 {
		return 0, false
	}
	return a[0].due, true
}

// Len implements heap.Interface.
func (a agenda) Len() int { return len(a) }

// Less implements heap.Interface.
func (a agenda) Less(i, j int) bool { return a[i].due < a[j].due }

// Swap implements heap.Interface.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(s any) {
	s.(*slot).place = len(*a)
	*a = append(*a, s.(*slot))
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	s := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	s.place = -1
	return s
}
