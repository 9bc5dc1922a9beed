package clientconn

import "time"

// ConnPhase is what a connection's client has done last.
type ConnPhase uint8

const (
	Arriving ConnPhase = iota // connected, or begun a request
	Idle                      // had its last request answered
	Active                    // asked for something
	surplus                   // connected when there was no room
	gone                      // closed, or told to go; for good
)

// guest is the part of a connection that its place among the others is about. Guarded by
// connections.mu, but for what is static.
type guest struct {
	at    *Connections // static; nil: it is not counted
	phase ConnPhase
	since time.Duration // since connections.began
	links [2]link       // in a queue of all, and in one of its peer's
	peer  *tally        // nil: its peer has no limit
	leave func()        // ends it politely; nil: it is closed
}

// enterLocked puts a connection into a phase, at the end of those that are in it.
func (k *Connections) enterLocked(c *PacedConn, p ConnPhase) {
	c.guest.phase, c.guest.since = p, time.Since(k.began)
	switch p {
	case Arriving, Idle:
		k.mu.all.waiting[p].push(c)
		if peer := c.guest.peer; peer != nil {
			peer.waiting[p].push(c)
		}
	case surplus:
		k.mu.surplus.push(c)
	}
}

// leaveLocked takes a connection out of the phase that it is in.
func (k *Connections) leaveLocked(c *PacedConn) {
	switch p := c.guest.phase; p {
	case Arriving, Idle:
		k.mu.all.waiting[p].remove(c)
		if peer := c.guest.peer; peer != nil {
			peer.waiting[p].remove(c)
		}
	case surplus:
		k.mu.surplus.remove(c)
	}
}

// forgetLocked counts a connection no longer.
func (k *Connections) forgetLocked(c *PacedConn) {
	if c.guest.phase == gone {
		return
	}
	k.leaveLocked(c)
	counted := c.guest.phase != surplus
	c.guest.phase, c.guest.leave = gone, nil
	if !counted {
		return
	}
	k.mu.all.open--
	k.metrics.open.Dec()
	if peer := c.guest.peer; peer != nil {
		c.guest.peer = nil
		if peer.open--; peer.open == 0 {
			delete(k.mu.peers, peer.peer)
		}
	}
}

// Enter notes what the connection's client has done. A connection for which there was no room, or
// that has been ended, keeps its phase. The nil connection is counted nowhere.
func (c *PacedConn) Enter(p ConnPhase) {
	if c == nil || c.guest.at == nil {
		return
	}
	k, g := c.guest.at, &c.guest
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.phase == surplus || g.phase == gone || g.phase == p {
		return
	}
	k.leaveLocked(c)
	k.enterLocked(c, p)
}

// OnLeave sets how the client is sent away without a broken connection.
func (c *PacedConn) OnLeave(leave func()) {
	if k := c.guest.at; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.guest.leave = leave
	}
}

// OverLimit reports that there was no room for the connection, which its client is to learn.
func (c *PacedConn) OverLimit() bool {
	if c == nil || c.guest.at == nil {
		return false
	}
	k := c.guest.at
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.guest.phase == surplus
}

// SendAway sends the client away, if there is a way that breaks no connection (guest.leave).
func (c *PacedConn) SendAway() {
	if k := c.guest.at; k != nil {
		k.mu.Lock()
		leave := c.guest.leave
		k.mu.Unlock()
		if leave != nil {
			leave()
		}
	}
}

// left follows the end of a connection. It is idempotent.
func (g *guest) left(c *PacedConn) {
	if k := g.at; k != nil {
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
	c.guest.links[q.link] = link{before: q.last}
	if q.last == nil {
		q.first = c
	} else {
		q.last.guest.links[q.link].after = c
	}
	q.last = c
	q.length++
}

func (q *queue) remove(c *PacedConn) {
	l := c.guest.links[q.link]
	if l.before == nil {
		q.first = l.after
	} else {
		l.before.guest.links[q.link].after = l.after
	}
	if l.after == nil {
		q.last = l.before
	} else {
		l.after.guest.links[q.link].before = l.before
	}
	c.guest.links[q.link] = link{}
	q.length--
}
