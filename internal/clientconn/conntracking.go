package clientconn

import "time"

// ConnState is the state of a connection, like net/http's.
type ConnState uint8

const (
	StateNew       ConnState = iota // no whole request has arrived
	StateIdle                       // between two requests
	StateActive                     // being answered or watched
	stateOverLimit                  // accepted beyond the limit
	stateClosed                     // closed or evicted; final
)

// connTracking is what Connections keeps of one connection. Guarded by Connections.mu, except for
// what is static.
type connTracking struct {
	limits  *Connections // static; nil: it is not counted
	state   ConnState
	since   time.Duration // since connections.began
	links   [2]link       // in a queue of all, and in one of its peer's
	peer    *tally        // nil: its peer has no limit
	onEvict func()        // ends it without breaking a request; nil: it is cut
}

// setStateLocked puts a connection into a state, behind the others in that state.
func (k *Connections) setStateLocked(c *PacedConn, p ConnState) {
	c.tracking.state, c.tracking.since = p, time.Since(k.began)
	switch p {
	case StateNew, StateIdle:
		k.mu.all.waiting[p].push(c)
		if peer := c.tracking.peer; peer != nil {
			peer.waiting[p].push(c)
		}
	case stateOverLimit:
		k.mu.overLimit.push(c)
	}
}

// clearStateLocked takes a connection out of its state.
func (k *Connections) clearStateLocked(c *PacedConn) {
	switch p := c.tracking.state; p {
	case StateNew, StateIdle:
		k.mu.all.waiting[p].remove(c)
		if peer := c.tracking.peer; peer != nil {
			peer.waiting[p].remove(c)
		}
	case stateOverLimit:
		k.mu.overLimit.remove(c)
	}
}

// forgetLocked counts a connection no longer.
func (k *Connections) forgetLocked(c *PacedConn) {
	if c.tracking.state == stateClosed {
		return
	}
	k.clearStateLocked(c)
	counted := c.tracking.state != stateOverLimit
	c.tracking.state, c.tracking.onEvict = stateClosed, nil
	if !counted {
		return
	}
	k.mu.all.open--
	k.metrics.open.Dec()
	if peer := c.tracking.peer; peer != nil {
		c.tracking.peer = nil
		if peer.open--; peer.open == 0 {
			delete(k.mu.peers, peer.peer)
		}
	}
}

// SetState moves the connection to a state. A connection over the limit, or one that has ended,
// keeps its own. The nil connection is counted nowhere.
func (c *PacedConn) SetState(p ConnState) {
	if c == nil || c.tracking.limits == nil {
		return
	}
	k, g := c.tracking.limits, &c.tracking
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.state == stateOverLimit || g.state == stateClosed || g.state == p {
		return
	}
	k.clearStateLocked(c)
	k.setStateLocked(c, p)
}

// OnEvict sets how the connection is ended without breaking a request.
func (c *PacedConn) OnEvict(evict func()) {
	if k := c.tracking.limits; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.tracking.onEvict = evict
	}
}

// OverLimit reports that there was no room for the connection, which its client is to learn.
func (c *PacedConn) OverLimit() bool {
	if c == nil || c.tracking.limits == nil {
		return false
	}
	k := c.tracking.limits
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.tracking.state == stateOverLimit
}

// GoAway ends the connection without breaking a request, if OnEvict has set how.
func (c *PacedConn) GoAway() {
	if k := c.tracking.limits; k != nil {
		k.mu.Lock()
		evict := c.tracking.onEvict
		k.mu.Unlock()
		if evict != nil {
			evict()
		}
	}
}

// closed ends the accounting of a connection. It is idempotent.
func (g *connTracking) closed(c *PacedConn) {
	if k := g.limits; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forgetLocked(c)
	}
}

// queue is connections in the order in which they came into it. It is made of links in the
// connections themselves, since every request goes through two of them.
type queue struct {
	link        int // which links are this queue's
	first, last *PacedConn
	length      int
}

type link struct{ before, after *PacedConn }

func (q *queue) push(c *PacedConn) {
	c.tracking.links[q.link] = link{before: q.last}
	if q.last == nil {
		q.first = c
	} else {
		q.last.tracking.links[q.link].after = c
	}
	q.last = c
	q.length++
}

func (q *queue) remove(c *PacedConn) {
	l := c.tracking.links[q.link]
	if l.before == nil {
		q.first = l.after
	} else {
		l.before.tracking.links[q.link].after = l.after
	}
	if l.after == nil {
		q.last = l.before
	} else {
		l.after.tracking.links[q.link].before = l.before
	}
	c.tracking.links[q.link] = link{}
	q.length--
}
