package clientconn

import "iter"

// connList is connections in the order in which they came into it. It is made of links in the
// connections themselves, because every request goes through two of them.
type connList struct {
	links       linkIndex // of its connections
	first, last *PacedConn
	length      int
}

// linkIndex tells which of a connection's links a queue is made of.
type linkIndex uint8

const (
	linkOfAll  linkIndex = iota // in a queue of all connections
	linkOfPeer                  // in one of its peer's
)

type link struct{ before, after *PacedConn }

// conns yields the connections of the queue, of which the loop may remove the one that it has.
func (q *connList) conns() iter.Seq[*PacedConn] {
	return func(yield func(*PacedConn) bool) {
		for c := q.first; c != nil; {
			next := c.tracking.links[q.links].after
			if !yield(c) {
				return
			}
			c = next
		}
	}
}

func (q *connList) push(c *PacedConn) {
	c.tracking.links[q.links] = link{before: q.last}
	if q.last == nil {
		q.first = c
	} else {
		q.last.tracking.links[q.links].after = c
	}
	q.last = c
	q.length++
}

func (q *connList) remove(c *PacedConn) {
	l := c.tracking.links[q.links]
	if l.before == nil {
		q.first = l.after
	} else {
		l.before.tracking.links[q.links].after = l.after
	}
	if l.after == nil {
		q.last = l.before
	} else {
		l.after.tracking.links[q.links].before = l.before
	}
	c.tracking.links[q.links] = link{}
	q.length--
}
