package watch

import (
	"slices"
	"testing"

	"spillway/internal/fanout"
)

// turnsOf makes slots of an owner that have joined a queue.
func turnsOf(q *turnQueue, owner fanout.Owner, n int) []*slot {
	slots := make([]*slot, n)
	for i := range slots {
		slots[i] = &slot{}
		q.join(slots[i], owner)
	}
	return slots
}

func pushAll(q *turnQueue, slots []*slot) {
	for _, s := range slots {
		q.push(s)
	}
}

// An owner with many slots delays the slot of another owner by one turn.
func TestOwnersTakeTurns(t *testing.T) {
	q := newTurnQueue()
	many, few := turnsOf(&q, "many", 4000), turnsOf(&q, "few", 2)
	pushAll(&q, many)
	pushAll(&q, few)
	want := []*slot{many[0], few[0], many[1], few[1], many[2], many[3]}
	for i, s := range want {
		if q.pop() != s {
			t.Fatalf("turn %d is out of order", i)
		}
	}
	q.push(few[1])
	q.pop()
	if q.pop() != few[1] {
		t.Error("an owner that returns waits for more than one turn")
	}
}

// A slot has one place in the queue, and a queue that never gets empty keeps its order.
func TestTurnsKeepTheirOrder(t *testing.T) {
	q := newTurnQueue()
	slots := turnsOf(&q, "owner", 10)
	pushAll(&q, slots)
	pushAll(&q, slots)
	for i := range 1000 {
		s := q.pop()
		if s != slots[i%len(slots)] {
			t.Fatalf("turn %d is out of order", i)
		}
		q.push(s)
	}
	for range slots {
		q.pop()
	}
	if !q.isEmpty() || q.pop() != nil {
		t.Error("a slot is in the queue more than once")
	}
}

// An owner is forgotten with its last slot, and a slot that leaves while it waits keeps its turn.
func TestAnOwnerIsForgottenWithItsLastSlot(t *testing.T) {
	q := newTurnQueue()
	a, b := turnsOf(&q, "a", 2), turnsOf(&q, "b", 1)
	pushAll(&q, slices.Concat(a, b))
	for _, s := range slices.Concat(a, b) {
		q.leave(s)
	}
	if len(q.owners) != 0 {
		t.Errorf("%d owners without slots are kept", len(q.owners))
	}
	for _, s := range []*slot{a[0], b[0], a[1]} {
		if q.pop() != s {
			t.Error("a turn is lost")
		}
	}
}

// An event that thousands of one owner's watches see reaches another owner's watch with one of the
// first turns.
func TestEventAmongManyWatchesOfAnotherOwner(t *testing.T) {
	w := newWriter(&Manager{})
	woken := &feedGroup{writer: w} // all wait for the same event
	var one *slot
	for i := range 4000 {
		s := &slot{writer: w, stream: &Stream{owner: "many"}}
		if i == 2000 {
			s.stream.owner, one = "one", s
		}
		woken.add(s)
	}
	woken.Wake()
	w.drainWakeups()
	if first, second := w.queue.pop(), w.queue.pop(); first != one && second != one {
		t.Error("the other owner's watch waits for more than one turn")
	}
}
