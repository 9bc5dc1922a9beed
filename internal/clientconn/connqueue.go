package clientconn

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// ConnState is the state of a connection, like net/http's.
type ConnState uint8

const (
	stateUncounted ConnState = iota // not yet admitted, closed or evicted
	StateNew                        // no whole request has arrived
	StateIdle                       // between two requests
	StateActive                     // being answered or watched
	stateOverLimit                  // accepted beyond the limit
)

// isResting reports that a connection in a state is neither answered nor watched.
func (s ConnState) isResting() bool { return s == StateNew || s == StateIdle }

// connTracking is what Connections keeps of one connection. Guarded by Connections.mu, except for
// what is static.
type connTracking struct {
	countedBy     *Connections // static; nil: it is not counted
	state         ConnState
	evictionQueue evictionQueue
	leaving       bool                 // GOAWAY has been sent
	proven        atomic.Bool          // also read without mu: it changes once
	since         time.Duration        // when it came into its queue, since Connections.startedAt
	links         [linkIndexCount]link // of the group of all, and of its peer's
	peer          *connGroup           // nil: its peer has no limit
	onEvict       func(gently bool)    // ends it, without breaking a request if gently; nil: it is cut
}

// isOpen reports that the connection is counted, and not over the limit.
func (t *connTracking) isOpen() bool { return t.state != stateUncounted && t.state != stateOverLimit }

// dueQueue is the queue that state, proof and GOAWAY call for.
func (t *connTracking) dueQueue() evictionQueue {
	switch {
	case t.state == stateUncounted:
		return queueNone
	case t.state == stateOverLimit:
		return queueOverLimit
	case t.state == StateNew || !t.proven.Load():
		return queueUnproven
	case t.state == StateIdle:
		return queueIdle
	case t.leaving:
		return queueLeaving
	}
	return queueNone
}

// evictedState is what the metric calls the state of a connection that is evicted.
func (t *connTracking) evictedState() string {
	switch {
	case t.evictionQueue == queueOverLimit:
		return evictedOverLimit
	case t.evictionQueue == queueLeaving:
		return evictedLeaving
	case t.state == StateNew:
		return evictedNew
	case t.state == StateIdle:
		return evictedIdle
	}
	return evictedUnproven
}

// evictionQueue names the queue in which a connection waits to be evicted.
type evictionQueue uint8

const (
	queueNone      evictionQueue = iota // not to be evicted
	queueUnproven                       // new or unproven
	queueIdle                           // proven, and idle
	queueLeaving                        // proven, active and leaving
	queueOverLimit                      // accepted beyond the limit; only in the group of all
	evictionQueueCount
)

// connGroup is the connections of which there is a limit together: all, or those of one peer. The
// nil group has no connections.
type connGroup struct {
	// Static after construction.
	limit int        // 0: none
	peer  netip.Addr // invalid: all

	// Guarded by Connections.mu.
	open    int
	waiting [evictionQueueCount]connList // that of queueNone is empty
}

func newConnGroup(links linkIndex, limit int) connGroup {
	g := connGroup{limit: limit}
	for i := range g.waiting {
		g.waiting[i].links = links
	}
	return g
}

// isFull reports that another connection needs the place of one that there is.
func (g *connGroup) isFull() bool { return g != nil && g.limit > 0 && g.open >= g.limit }

const (
	// newConnTimeout is the age from which a new or unproven connection is evicted rather than idle
	// ones: a TLS handshake, a head, and a review of a token take a few round trips.
	newConnTimeout = 5 * time.Second
	// floodShare: if more than one in floodShare of the limit are new or unproven, that is a flood.
	floodShare = 4
)

// victim is the connection to evict, in the order that Connections describes; nil: there is none.
func (g *connGroup) victim(now time.Duration) *PacedConn {
	unproven := &g.waiting[queueUnproven]
	oldest, idle := unproven.first, g.waiting[queueIdle].first
	switch {
	case oldest != nil && (now-oldest.tracking.since > newConnTimeout || unproven.length*floodShare > g.limit):
		return oldest
	case idle != nil:
		return idle
	case oldest != nil:
		return oldest
	}
	return g.waiting[queueLeaving].first
}

// enqueue puts a connection behind the others of its queue.
func (g *connGroup) enqueue(c *PacedConn) {
	if q := c.tracking.evictionQueue; g != nil && q != queueNone {
		g.waiting[q].push(c)
	}
}

// dequeue takes a connection out of its queue.
func (g *connGroup) dequeue(c *PacedConn) {
	if q := c.tracking.evictionQueue; g != nil && q != queueNone {
		g.waiting[q].remove(c)
	}
}
