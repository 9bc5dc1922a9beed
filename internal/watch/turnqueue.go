package watch

import "spillway/internal/fanout"

// turnQueue is the slots that wait for their turns. Owners take turns, and the slots of an owner
// take theirs in order of arrival. So an owner with thousands of watches delays another owner's
// event by one turn, where a single queue would delay it by thousands.
//
// The lists run through the slots and owners themselves: a queue that never gets empty does not
// grow.
type turnQueue struct {
	owners      map[fanout.Owner]*ownerTurns
	first, last *ownerTurns // those with slots in the queue
}

// ownerTurns is the slots of one owner that wait.
type ownerTurns struct {
	name        fanout.Owner
	members     int // slots that may be queued; the last one to leave removes the owner
	first, last *slot
	next        *ownerTurns
}

func newTurnQueue() turnQueue { return turnQueue{owners: map[fanout.Owner]*ownerTurns{}} }

// join makes a slot a member of its owner's queue.
func (q *turnQueue) join(s *slot, owner fanout.Owner) {
	o := q.owners[owner]
	if o == nil {
		o = &ownerTurns{name: owner}
		q.owners[owner] = o
	}
	o.members++
	s.owner = o
}

// leave ends the membership of a slot. One that is queued gets its turn all the same.
func (q *turnQueue) leave(s *slot) {
	if s.owner.members--; s.owner.members == 0 {
		delete(q.owners, s.owner.name)
	}
}

// push gives a slot a turn after its owner's others, unless it waits for one.
func (q *turnQueue) push(s *slot) {
	if s.queued {
		return
	}
	s.queued = true
	o := s.owner
	if o.last != nil {
		o.last.nextQueued, o.last = s, s
		return
	}
	o.first, o.last = s, s
	q.append(o)
}

// pop returns the slot whose turn is next, nil if none waits.
func (q *turnQueue) pop() *slot {
	o := q.first
	if o == nil {
		return nil
	}
	if q.first, o.next = o.next, nil; q.first == nil {
		q.last = nil
	}
	s := o.first
	if o.first, s.nextQueued = s.nextQueued, nil; o.first == nil {
		o.last = nil
	} else {
		q.append(o)
	}
	s.queued = false
	return s
}

// append puts an owner behind the others.
func (q *turnQueue) append(o *ownerTurns) {
	if q.last == nil {
		q.first, q.last = o, o
		return
	}
	q.last.next, q.last = o, o
}

func (q *turnQueue) isEmpty() bool { return q.first == nil }
