package timerheap

import "testing"

type timer struct {
	Node
	due int
}

func (t *timer) DueBefore(other *timer) bool { return t.due < other.due }

func TestElementsComeInOrderOfTheirTimes(t *testing.T) {
	var h Heap[*timer]
	timers := make([]*timer, 100)
	set := func(i, due int) {
		timers[i].due = due
		h.Set(timers[i])
	}
	for i := range timers {
		timers[i] = &timer{}
		set(i, i*37%100)
	}
	set(3, 3600) // later
	set(99, -1)  // sooner
	h.Remove(timers[50])
	h.Remove(timers[50]) // once more does no harm
	for n, last := 99, -2; n > 0; n-- {
		first := h.First()
		if first == nil || first.due < last || len(h) != n {
			t.Fatalf("%d are left: %v after %v", len(h), first, last)
		}
		for i, e := range h {
			if e.number != i+1 || !e.InHeap() {
				t.Fatalf("an element at %d says %d", i, e.number-1)
			}
		}
		last = first.due
		h.Remove(first)
	}
	if h.First() != nil || len(h) != 0 || timers[3].InHeap() {
		t.Error("an element is left")
	}
}
