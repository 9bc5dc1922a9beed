package clientconn

import "iter"

// connList is connections in the order in which they came into it. Links are embedded in the
// connections so that moving allocates nothing: each request moves its connection.
type connList struct {
	links       linkIndex // of its connections
	first, last *PacedConn
	length      int
}

// linkIndex tells which of a connection's links a list is made of.
type linkIndex uint8

const (
	linkOfAll  linkIndex = iota // in a list of the group of all
	linkOfPeer                  // in one of its peer's
	linkIndexCount
)

type link struct{ before, after *PacedConn }

// conns yields the connections of the list. The loop may remove the one that it has.
func (l *connList) conns() iter.Seq[*PacedConn] {
	return func(yield func(*PacedConn) bool) {
		for c := l.first; c != nil; {
			next := c.tracking.links[l.links].after
			if !yield(c) {
				return
			}
			c = next
		}
	}
}

// push appends a connection.
func (l *connList) push(c *PacedConn) {
	c.tracking.links[l.links] = link{before: l.last}
	if l.last == nil {
		l.first = c
	} else {
		l.last.tracking.links[l.links].after = c
	}
	l.last = c
	l.length++
}

// remove takes out a connection, which is in the list.
func (l *connList) remove(c *PacedConn) {
	own := c.tracking.links[l.links]
	if own.before == nil {
		l.first = own.after
	} else {
		own.before.tracking.links[l.links].after = own.after
	}
	if own.after == nil {
		l.last = own.before
	} else {
		own.after.tracking.links[l.links].before = own.before
	}
	c.tracking.links[l.links] = link{}
	l.length--
}
