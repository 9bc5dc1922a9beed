package serve

import (
	"slices"
	"testing"
	"testing/synctest"

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
		t.Error("an owner that comes back waits for more than one turn")
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
	if !q.empty() || q.pop() != nil {
		t.Error("a slot is in the queue more than once")
	}
}

// An owner is forgotten with its last slot, and a slot that leaves while it waits keeps its turn.
func TestOwnersLeave(t *testing.T) {
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

// orderedOutlet is an outlet that writes down whose turn it is.
type orderedOutlet struct {
	outlet
	order *[]*connSink
	sink  *connSink
}

func (r orderedOutlet) offer(b []byte) (int, error) {
	*r.order = append(*r.order, r.sink)
	return r.outlet.offer(b)
}

// An event that thousands of one owner's watches see reaches another owner's watch with one of the first turns.
func TestEventAmongManyWatchesOfAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []*connSink
		w := newWorld(t, func(s *Server) deliverer {
			w := newWriter(s)
			w.open = func(c *connSink) outlet { return orderedOutlet{pacer(c.conn).Conn.(*narrow), &order, c} }
			d := &writers{shards: []*writer{w}}
			d.start(s)
			return d
		})
		owned := func(owner fanout.Owner) *peer {
			return w.watchAs("/api/v1/pods?watch=1&resourceVersion=100", func(st *stream) { st.owner = owner })
		}
		for range 300 {
			owned("many")
		}
		one := owned("one")
		synctest.Wait()
		for _, event := range []string{"a/x 101", "a/x 102"} { // the second by feeds
			order = order[:0]
			w.set(event)
			synctest.Wait()
			if at := slices.Index(order, one.stream.out.(*connSink)); at < 0 || at > 1 {
				t.Errorf("%s: turn %d of %d is the other owner's", event, at, len(order))
			}
		}
		one.gets("ADDED a/x 101", "MODIFIED a/x 102")
	})
}
