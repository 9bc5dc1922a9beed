package clientconn

import (
	"net/netip"
	"sync"
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
	perPeer   int // 0: no limit
	minAge    time.Duration
	isOver    <-chan struct{} // closed when no connection waits any more; nil: never
	metrics   *ConnMetrics
	startedAt time.Time // base of connTracking.since, which is smaller than a time.Time

	mu struct {
		sync.Mutex
		all     connGroup
		peers   map[netip.Addr]*connGroup // empty without perPeer
		resting int                       // of all: new or idle
	}
}

const (
	// newConnMinAge is the age below which a new or unproven connection is not evicted.
	newConnMinAge = 2 * time.Second
	// admitRetryInterval is how often admit retries while every candidate is below newConnMinAge.
	admitRetryInterval = 10 * time.Millisecond
	// overLimitConnsLimit is how many connections beyond the limit are answered 429.
	overLimitConnsLimit = 128
)

// NewConnections limits connections, in all and those of one peer; 0: not. Once over is closed,
// nothing waits for room.
func NewConnections(limit, perPeer int, m *ConnMetrics, over <-chan struct{}) *Connections {
	k := &Connections{perPeer: perPeer, minAge: newConnMinAge, isOver: over, metrics: m, startedAt: time.Now()}
	k.mu.all = newConnGroup(linkOfAll, limit)
	k.mu.peers = map[netip.Addr]*connGroup{}
	return k
}

// AdmitAtOnce gives no connection a moment to arrive before another may take its place. It is
// called ahead of the first.
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

// admit counts a connection that has been accepted, and ends those that make room for it, which may
// have to be waited for. The nil connections count nothing.
func (k *Connections) admit(c *PacedConn) {
	if k == nil {
		return
	}
	c.tracking.countedBy = k
	for !k.tryAdmit(c) {
		select {
		case <-time.After(admitRetryInterval):
		case <-k.isOver:
			return // the caller of Accept closes the connection
		}
	}
}

// tryAdmit counts a connection, unless the one to evict for it is below the minimum age.
func (k *Connections) tryAdmit(c *PacedConn) bool {
	k.mu.Lock()
	if k.isVictimTooYoungLocked() {
		k.mu.Unlock()
		return false
	}
	evicted := k.admitLocked(c)
	k.mu.Unlock()
	endAll(evicted)
	return true
}

// isVictimTooYoungLocked reports that the connection to evict is below the minimum age.
func (k *Connections) isVictimTooYoungLocked() bool {
	if !k.mu.all.isFull() {
		return false
	}
	now := time.Since(k.startedAt)
	victim := k.mu.all.victim(now)
	return victim != nil && victim.tracking.evictionQueue == queueUnproven && victim.tracking.state != StateIdle &&
		now-victim.tracking.since < k.minAge
}

// admitLocked counts a connection, and returns what ends the evicted ones.
func (k *Connections) admitLocked(c *PacedConn) (evicted []func()) {
	from := AddressOf(c.Conn.RemoteAddr()).Unmap()
	hasRoom := true
	for _, g := range []*connGroup{k.mu.peers[from], &k.mu.all} {
		if !g.isFull() {
			continue
		}
		if victim := g.victim(time.Since(k.startedAt)); victim != nil {
			evicted = append(evicted, k.evictLocked(victim))
		} else {
			hasRoom = false
		}
	}
	if !hasRoom {
		if waiting := &k.mu.all.waiting[queueOverLimit]; waiting.length >= overLimitConnsLimit {
			evicted = append(evicted, k.evictLocked(waiting.first))
		}
		k.moveLocked(c, stateOverLimit)
		return evicted
	}
	k.mu.all.open++
	k.metrics.open.Inc()
	if c.tracking.peer = k.peerLocked(from); c.tracking.peer != nil {
		c.tracking.peer.open++
	}
	k.moveLocked(c, StateNew)
	return evicted
}

// peerLocked is the group of a peer's connections; nil if they have no limit.
func (k *Connections) peerLocked(from netip.Addr) *connGroup {
	if k.perPeer <= 0 || !from.IsValid() {
		return nil
	}
	g := k.mu.peers[from]
	if g == nil {
		made := newConnGroup(linkOfPeer, k.perPeer)
		g = &made
		g.peer = from
		k.mu.peers[from] = g
	}
	return g
}

// EvictUnproven ends a part of the unproven connections, the oldest first, while memory is short:
// all of them together may hold more than is left. Those that have sent a request have
// newConnTimeout, because credentials take long to review when many clients come at once. The next
// call shows whether that was enough.
func (k *Connections) EvictUnproven() {
	k.mu.Lock()
	now := time.Since(k.startedAt)
	unproven := &k.mu.all.waiting[queueUnproven]
	limit := max(1, unproven.length/evictedFraction)
	var evicted []func()
	for c := range unproven.conns() {
		if len(evicted) == limit {
			break
		}
		minAge := newConnTimeout
		if c.tracking.state == StateNew {
			minAge = k.minAge
		}
		if now-c.tracking.since >= minAge && !c.tracking.proven.Load() {
			evicted = append(evicted, k.evictLocked(c))
		}
	}
	k.mu.Unlock()
	endAll(evicted)
}

// evictLocked counts a connection no longer, and returns what ends it: gracefully if it is idle. It
// is called without mu.
func (k *Connections) evictLocked(c *PacedConn) (end func()) {
	t := &c.tracking
	k.metrics.evicted.WithLabelValues(t.evictedState()).Inc()
	gently, onEvict := t.evictionQueue == queueIdle, t.onEvict
	k.forgetLocked(c)
	if onEvict == nil {
		return c.Cut
	}
	return func() { onEvict(gently) }
}

func endAll(evicted []func()) {
	for _, end := range evicted {
		end()
	}
}

// moveLocked puts a connection into a state, behind the others that are evicted as it is.
func (k *Connections) moveLocked(c *PacedConn, s ConnState) {
	k.dequeueLocked(c)
	k.setStateLocked(c, s)
	c.tracking.since = time.Since(k.startedAt)
	c.tracking.evictionQueue = c.tracking.dueQueue()
	k.mu.all.enqueue(c)
	c.tracking.peer.enqueue(c)
}

// requeueLocked puts a connection among those that are evicted as it is now.
func (k *Connections) requeueLocked(c *PacedConn) {
	if c.tracking.isOpen() {
		k.moveLocked(c, c.tracking.state)
	}
}

// dequeueLocked has a connection not be evicted.
func (k *Connections) dequeueLocked(c *PacedConn) {
	k.mu.all.dequeue(c)
	c.tracking.peer.dequeue(c)
	c.tracking.evictionQueue = queueNone
}

// setStateLocked changes the state of a connection alone. An unproven one keeps its place among
// those to evict, and its age since it was accepted: by requests that cost nothing a client could
// renew them.
func (k *Connections) setStateLocked(c *PacedConn, s ConnState) {
	if c.tracking.state.isResting() {
		k.mu.resting--
	}
	if c.tracking.state = s; s.isResting() {
		k.mu.resting++
	}
}

// forgetLocked counts a connection no longer.
func (k *Connections) forgetLocked(c *PacedConn) {
	t := &c.tracking
	if t.state == stateUncounted {
		return
	}
	k.dequeueLocked(c)
	wasOpen := t.isOpen()
	k.setStateLocked(c, stateUncounted)
	t.onEvict = nil
	if !wasOpen {
		return
	}
	k.mu.all.open--
	k.metrics.open.Dec()
	if peer := t.peer; peer != nil {
		t.peer = nil
		if peer.open--; peer.open == 0 {
			delete(k.mu.peers, peer.peer)
		}
	}
}
