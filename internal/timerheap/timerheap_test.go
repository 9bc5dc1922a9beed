package timerheap

import "testing"

type timer struct {
	Node
	due int
}

func (t *timer) DueBefore(other *timer) bool { return t.due < other.due }

// heapOf is a heap of timers that are due at these times, in the order of the arguments.
func heapOf(due ...int) (*Heap[*timer], []*timer) {
	h, timers := &Heap[*timer]{}, make([]*timer, len(due))
	for i, d := range due {
		timers[i] = &timer{due: d}
		h.Set(timers[i])
	}
	return h, timers
}

// mustDrain removes the first element of a heap until there is none. It checks that as many
// elements come as are wanted, each once and in order, and that each knows its place meanwhile.
func mustDrain(t *testing.T, h *Heap[*timer], want int) (drained []*timer) {
	t.Helper()
	for len(*h) > 0 {
		for i, e := range *h {
			if e.number != i+1 || !e.InHeap() {
				t.Fatalf("the element at %d has number %d", i, e.number)
			}
		}
		first := h.First()
		if n := len(drained); n > 0 && first.due < drained[n-1].due {
			t.Fatalf("%d comes after %d", first.due, drained[n-1].due)
		}
		left := len(*h)
		if h.Remove(first); first.InHeap() || len(*h) != left-1 {
			t.Fatalf("the removal of one of %d elements leaves %d", left, len(*h))
		}
		drained = append(drained, first)
	}
	if h.First() != nil {
		t.Fatal("an empty heap has a first element")
	}
	if len(drained) != want {
		t.Fatalf("%d elements came, want %d", len(drained), want)
	}
	return drained
}

// shuffled are the numbers below n, each once.
func shuffled(n, step int) (all []int) {
	for i := range n {
		all = append(all, i*step%n)
	}
	return all
}

func TestElementsComeInOrderOfTheirTimes(t *testing.T) {
	h, _ := heapOf(shuffled(100, 37)...)
	mustDrain(t, h, 100)
}

func TestFirstFollowsChangedTimes(t *testing.T) {
	h, timers := heapOf(shuffled(100, 37)...)
	set := func(e *timer, due int) {
		e.due = due
		h.Set(e)
	}
	sooner, later := timers[99], timers[0]
	set(sooner, -1)
	if h.First() != sooner {
		t.Errorf("first is %d, want the element that is due sooner now", h.First().due)
	}
	set(later, 3600)
	if drained := mustDrain(t, h, 100); drained[99] != later {
		t.Errorf("last is %d, want the element that is due later now", drained[99].due)
	}
}

func TestRemovedElementNeverComes(t *testing.T) {
	h, timers := heapOf(shuffled(100, 37)...)
	removed := timers[50]
	h.Remove(removed)
	if removed.InHeap() {
		t.Error("a removed element is in the heap")
	}
	for _, e := range mustDrain(t, h, 99) {
		if e == removed {
			t.Error("a removed element comes")
		}
	}
}

func TestRemoveIsIdempotent(t *testing.T) {
	h, timers := heapOf(3, 1, 2)
	h.Remove(timers[1])
	h.Remove(timers[1])
	mustDrain(t, h, 2)
}

func TestRemovedElementMayBeAddedAgain(t *testing.T) {
	h, timers := heapOf(3, 1, 2)
	h.Remove(timers[1])
	h.Set(timers[1])
	if h.First() != timers[1] {
		t.Errorf("first is %d, want the element that was added again", h.First().due)
	}
	mustDrain(t, h, 3)
}

func TestElementsOfOneTimeComeOnceEach(t *testing.T) {
	h, _ := heapOf(1, 0, 1, 1, 0)
	came := map[*timer]bool{}
	for _, e := range mustDrain(t, h, 5) {
		came[e] = true
	}
	if len(came) != 5 {
		t.Errorf("%d elements came, want 5", len(came))
	}
}
