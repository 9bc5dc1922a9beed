package clientconn

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Connections limits the connections of clients on all listeners, in all and for each peer, and
// evicts some at the limit.
//
// Connections have states like net/http's. A *new* connection has not sent a whole request, an
// *idle* one is between two requests, and an *active* one is being answered or watched. Whatever
// its state, a connection is *unproven* until a request on it has had credentials that are good.
// New and unproven connections cost their clients nothing, so floods consist of those. Servers
// close idle connections anyway, and clients handle that. A proven connection that is active is
// never evicted, unless it is *leaving*: it ends with what is under way (GOAWAY). At the limit, a
// new connection replaces
//
//   - the new or unproven one that has been in its state for longest, if that is longer than
//     newConnTimeout, or if there are so many of them that they are a flood;
//   - else the one that has been idle for longest;
//   - else the new or unproven one that has been in its state for longest;
//   - else the one that has been leaving for longest.
//
// No new or unproven connection is evicted before newConnMinAge, unless it is idle: until then the
// next one waits in the kernel's queue. Otherwise a flood that reconnects as fast as it is evicted
// would evict every client that needs longer.
//
// Where none can be evicted, a few more than the limit are accepted, and their requests are
// answered 429 with Retry-After. Beyond those few the one that has waited for its request for
// longest is cut.
//
// Invariant: a connection is counted once, from when it is accepted until it is closed or evicted.
type Connections struct {
	// Static after construction.
	limit     int // 0: no limit
	perPeer   int // 0: no limit
	minAge    time.Duration
	isOver    <-chan struct{} // closed when no connection waits any more; nil: never
	metrics   *ConnMetrics
	startedAt time.Time // base of connTracking.since, which is smaller than a time.Time

	mu struct {
		sync.Mutex
		all       connCounts
		peers     map[netip.Addr]*connCounts // empty without perPeer
		overLimit queue                      // those beyond the limit, which are answered 429
		resting   int                        // of all: new or idle
	}
}

const (
	// newConnTimeout is the age from which a new or unproven connection is evicted rather than idle
	// ones: a TLS handshake, a head, and a review of a token take a few round trips.
	newConnTimeout = 5 * time.Second
	// newConnMinAge is the age below which a new or unproven connection is not evicted.
	newConnMinAge = 2 * time.Second
	// admitRetryInterval is how often admit retries while every candidate is below newConnMinAge.
	admitRetryInterval = 10 * time.Millisecond
	// floodShare: if more than one in floodShare of the limit are new or unproven, that is a flood.
	floodShare = 4
	// overLimitConnsLimit is how many connections beyond the limit are answered 429.
	overLimitConnsLimit = 128
)

// connCounts is the connections of which there is a limit together: all, or those of one peer.
type connCounts struct {
	peer    netip.Addr // static; invalid: all
	open    int
	waiting [evictionQueues]queue // by evictionQueue
}

// evictionQueue is where a connection waits that may be evicted.
type evictionQueue int8

const (
	queueUnproven  evictionQueue = iota // new or unproven
	queueIdle                           // proven, and idle
	queueLeaving                        // proven, active and leaving
	evictionQueues                      // how many there are
	queueOverLimit                      // accepted beyond the limit
	queueNone                           // not to be evicted
)

// NewConnections limits connections, in all and those of one peer; 0: not. Once over is closed,
// nothing waits for room.
func NewConnections(most, perPeer int, m *ConnMetrics, over <-chan struct{}) *Connections {
	k := &Connections{limit: most, perPeer: perPeer, minAge: newConnMinAge, isOver: over, metrics: m,
		startedAt: time.Now()}
	k.mu.all = newConnCounts(0)
	k.mu.overLimit = queue{link: 0}
	k.mu.peers = map[netip.Addr]*connCounts{}
	return k
}

// AdmitAtOnce gives no connection a moment to arrive before another may take its place. It is
// called before the first.
func (k *Connections) AdmitAtOnce() { k.minAge = 0 }

// ActiveConnections is how many connections are answered or watched.
func (k *Connections) ActiveConnections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.all.open - k.mu.resting
}

// Open is how many connections are open, without those beyond the limit.
func (k *Connections) Open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.all.open
}

func newConnCounts(link int) (y connCounts) {
	for i := range y.waiting {
		y.waiting[i].link = link
	}
	return y
}

// admit counts a connection that has been accepted, and ends those that make room for it, which may
// have to be waited for. The nil connections count nothing.
func (k *Connections) admit(c *PacedConn) {
	if k == nil {
		return
	}
	c.tracking.limits = k
	from := peerOf(c.Conn)
	for waiting := true; waiting; {
		k.mu.Lock()
		var evicted []evictedConn
		if waiting = k.victimTooYoungLocked(); !waiting {
			evicted = k.admitLocked(c, from)
		}
		k.mu.Unlock()
		for _, l := range evicted {
			l.end()
		}
		if waiting {
			select {
			case <-time.After(admitRetryInterval):
			case <-k.isOver:
				c.tracking.limits = nil
				return // the caller of Accept closes the connection
			}
		}
	}
}

// victimTooYoungLocked reports that the connection to evict is below the minimum age.
func (k *Connections) victimTooYoungLocked() bool {
	if k.limit <= 0 || k.mu.all.open < k.limit {
		return false
	}
	now := time.Since(k.startedAt)
	victim, _ := k.mu.all.victim(now, k.limit)
	return victim != nil && victim.tracking.queue == queueUnproven && victim.tracking.state != StateIdle &&
		now-victim.tracking.since < k.minAge
}

// evictedConn is a connection to end, and how.
type evictedConn struct {
	conn     *PacedConn
	graceful bool // without breaking a request, if there is a way
	onEvict  func(gently bool)
}

func (l evictedConn) end() {
	if l.onEvict != nil {
		l.onEvict(l.graceful)
		return
	}
	l.conn.Cut()
}

func (k *Connections) admitLocked(c *PacedConn, from netip.Addr) (evicted []evictedConn) {
	evict := func(c *PacedConn, reason string) { evicted = append(evicted, k.evictLocked(c, reason)) }
	full := false
	limit := func(y *connCounts, most int) {
		if y == nil || most <= 0 || y.open < most {
			return
		}
		if victim, why := y.victim(time.Since(k.startedAt), most); victim != nil {
			evict(victim, why)
		} else {
			full = true
		}
	}
	limit(k.mu.peers[from], k.perPeer)
	limit(&k.mu.all, k.limit)
	if full {
		if k.mu.overLimit.length >= overLimitConnsLimit {
			evict(k.mu.overLimit.first, evictedOverLimit)
		}
		k.setStateLocked(c, stateOverLimit)
		return evicted
	}
	k.mu.all.open++
	k.metrics.open.Inc()
	if c.tracking.peer = k.peerLocked(from); c.tracking.peer != nil {
		c.tracking.peer.open++
	}
	k.setStateLocked(c, StateNew)
	return evicted
}

// evictLocked counts a connection no longer, which its caller ends.
func (k *Connections) evictLocked(c *PacedConn, reason string) evictedConn {
	l := evictedConn{c, c.tracking.queue == queueIdle, c.tracking.onEvict}
	k.forgetLocked(c)
	k.metrics.evicted.WithLabelValues(reason).Inc()
	return l
}

// EvictUnproven ends a part of the unproven connections, the oldest first, while memory is short:
// all of them together may hold more than is left. Those that have sent a request have
// newConnTimeout, since credentials take long to review when many clients come at once. The next
// call shows whether that was enough.
func (k *Connections) EvictUnproven() {
	k.mu.Lock()
	now := time.Since(k.startedAt)
	unproven := &k.mu.all.waiting[queueUnproven]
	most := max(1, unproven.length/evictedFraction)
	var evicted []evictedConn
	for c := unproven.first; c != nil && len(evicted) < most; {
		next, least := c.tracking.links[0].after, newConnTimeout
		if c.tracking.state == StateNew {
			least = k.minAge
		}
		if now-c.tracking.since >= least && !c.tracking.proven.Load() {
			evicted = append(evicted, k.evictLocked(c, c.tracking.state.evictionReason()))
		}
		c = next
	}
	k.mu.Unlock()
	for _, l := range evicted {
		l.end()
	}
}

// peerLocked is the count of a peer; nil if it has no limit.
func (k *Connections) peerLocked(from netip.Addr) *connCounts {
	if k.perPeer <= 0 || !from.IsValid() {
		return nil
	}
	p := k.mu.peers[from]
	if p == nil {
		made := newConnCounts(1)
		p = &made
		p.peer = from
		k.mu.peers[from] = p
	}
	return p
}

// victim is the connection to evict, and why; nil if there is none.
func (y *connCounts) victim(now time.Duration, most int) (*PacedConn, string) {
	unproven, idle := &y.waiting[queueUnproven], y.waiting[queueIdle].first
	first := unproven.first
	late := first != nil && now-first.tracking.since > newConnTimeout
	switch {
	case late, first != nil && unproven.length*floodShare > most:
		return first, first.tracking.state.evictionReason()
	case idle != nil:
		return idle, evictedIdle
	case first != nil:
		return first, first.tracking.state.evictionReason()
	}
	return y.waiting[queueLeaving].first, evictedLeaving
}

// evictionReason is why a connection is evicted that is in a state and unproven.
func (p ConnState) evictionReason() string {
	switch p {
	case StateNew:
		return evictedNew
	case StateIdle:
		return evictedIdle
	}
	return evictedUnproven
}

// peerOf is where a connection comes from; invalid for a unix socket, whose peers are all this
// machine.
func peerOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

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
	queue   evictionQueue
	leaving bool              // GOAWAY has been sent
	proven  atomic.Bool       // also read without mu: it changes once
	since   time.Duration     // since connections.began
	links   [2]link           // in a queue of all, and in one of its peer's
	peer    *connCounts       // nil: its peer has no limit
	onEvict func(gently bool) // ends it, without breaking a request if gently; nil: it is cut
}

// queueLocked is where a connection in its state waits to be evicted.
func (g *connTracking) queueLocked() evictionQueue {
	switch {
	case g.state == stateOverLimit:
		return queueOverLimit
	case g.state == stateClosed:
		return queueNone
	case g.state == StateNew || !g.proven.Load():
		return queueUnproven
	case g.state == StateIdle:
		return queueIdle
	case g.leaving:
		return queueLeaving
	}
	return queueNone
}

// setStateLocked puts a connection into a state, behind the others that are evicted as it is.
func (k *Connections) setStateLocked(c *PacedConn, p ConnState) {
	g := &c.tracking
	g.state, g.since = p, time.Since(k.startedAt)
	if p.isResting() {
		k.mu.resting++
	}
	switch g.queue = g.queueLocked(); {
	case g.queue < evictionQueues:
		k.mu.all.waiting[g.queue].push(c)
		if g.peer != nil {
			g.peer.waiting[g.queue].push(c)
		}
	case g.queue == queueOverLimit:
		k.mu.overLimit.push(c)
	}
}

// clearStateLocked takes a connection out of its state.
func (k *Connections) clearStateLocked(c *PacedConn) {
	g := &c.tracking
	if g.state.isResting() {
		k.mu.resting--
	}
	switch {
	case g.queue < evictionQueues:
		k.mu.all.waiting[g.queue].remove(c)
		if g.peer != nil {
			g.peer.waiting[g.queue].remove(c)
		}
	case g.queue == queueOverLimit:
		k.mu.overLimit.remove(c)
	}
	g.queue = queueNone
}

// isResting reports that a connection in a state is neither answered nor watched.
func (p ConnState) isResting() bool { return p == StateNew || p == StateIdle }

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
	switch {
	case g.state == stateOverLimit || g.state == stateClosed || g.state == p:
	case !g.proven.Load():
		k.keepPlaceLocked(c, p)
	default:
		k.clearStateLocked(c)
		k.setStateLocked(c, p)
	}
}

// keepPlaceLocked moves an unproven connection to a state. It keeps its place among those to evict,
// and its age since it was accepted: by requests that cost nothing a client could renew them.
func (k *Connections) keepPlaceLocked(c *PacedConn, p ConnState) {
	g := &c.tracking
	if g.state.isResting() {
		k.mu.resting--
	}
	if g.state = p; p.isResting() {
		k.mu.resting++
	}
}

// MarkProven notes that a request has had good credentials. The nil connection is counted nowhere.
func (c *PacedConn) MarkProven() {
	if c == nil || c.tracking.limits == nil || c.tracking.proven.Load() {
		return
	}
	c.updateTracking(func(g *connTracking) { g.proven.Store(true) })
}

// MarkLeaving notes that the connection ends with what is under way on it.
func (c *PacedConn) MarkLeaving() {
	if c != nil && c.tracking.limits != nil {
		c.updateTracking(func(g *connTracking) { g.leaving = true })
	}
}

// updateTracking changes what decides how a connection is evicted.
func (c *PacedConn) updateTracking(f func(g *connTracking)) {
	k, g := c.tracking.limits, &c.tracking
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.state == stateOverLimit || g.state == stateClosed {
		f(g)
		return
	}
	k.clearStateLocked(c)
	f(g)
	k.setStateLocked(c, g.state)
}

// OnEvict sets how the connection is ended: if gently, without breaking a request; else at once.
func (c *PacedConn) OnEvict(evict func(gently bool)) {
	if k := c.tracking.limits; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.tracking.onEvict = evict
	}
}

// IsOverLimit reports that there was no room for the connection, which its client is to learn.
func (c *PacedConn) IsOverLimit() bool {
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
			evict(true)
		}
	}
}

// forget ends the accounting of a connection. It is idempotent.
func (g *connTracking) forget(c *PacedConn) {
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
