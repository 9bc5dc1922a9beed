package clientconn

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Connections limits the connections of clients on all listeners, in all and for each peer, and
// evicts some at the limit.
//
// Connections have states like net/http's. A *new* connection has not sent a whole request. It
// costs its client nothing, so floods consist of those. An *idle* one is between two requests.
// Servers close idle connections anyway, and clients handle that. An *active* one is being answered
// or watched, and is never evicted. At the limit, a new connection replaces
//
//   - the one that has been new for longest, if that is longer than newConnTimeout, or if so many
//     are new that they are a flood;
//   - else the one that has been idle for longest;
//   - else the one that has been new for longest.
//
// No connection is evicted before newConnMinAge: until then the next one waits in the kernel's
// queue. Otherwise a flood that reconnects as fast as it is evicted would evict every client that
// needs longer.
//
// Where all are active, a few more than the limit are accepted, and their requests are answered 429
// with Retry-After. Beyond those few the one that has waited for its request for longest is cut.
//
// Invariant: a connection is counted once, from when it is accepted until it is closed or evicted.
type Connections struct {
	// Static after construction.
	limit   int // 0: no limit
	perPeer int // 0: no limit
	minAge  time.Duration
	over    <-chan struct{} // closed when no connection waits any more; nil: never
	metrics *ConnMetrics
	began   time.Time // base of connTracking.since, which is smaller than a time.Time

	mu struct {
		sync.Mutex
		all       connCounts
		peers     map[netip.Addr]*connCounts // empty without perPeer
		overLimit queue                      // those beyond the limit, which are answered 429
	}
}

const (
	// newConnTimeout is the age from which a new connection is evicted before idle ones: a TLS
	// handshake and a head take a few round trips.
	newConnTimeout = 5 * time.Second
	// newConnMinAge is the age below which a new connection is never evicted.
	newConnMinAge = 2 * time.Second
	// admitRetryInterval is how often admit retries while every candidate is below newConnMinAge.
	admitRetryInterval = 10 * time.Millisecond
	// floodShare: if more than one in floodShare of the limit are new connections, that is a flood.
	floodShare = 4
	// overLimitConnsLimit is how many connections beyond the limit are answered 429.
	overLimitConnsLimit = 128
)

// connCounts is the connections of which there is a limit together: all, or those of one peer.
type connCounts struct {
	peer    netip.Addr // static; invalid: all
	open    int
	waiting [2]queue // by state: StateNew and StateIdle
}

// NewConnections limits connections, in all and those of one peer; 0: not. Once over is closed,
// nothing waits for room.
func NewConnections(most, perPeer int, m *ConnMetrics, over <-chan struct{}) *Connections {
	k := &Connections{limit: most, perPeer: perPeer, minAge: newConnMinAge, over: over, metrics: m, began: time.Now()}
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
	return k.mu.all.open - k.mu.all.waiting[StateNew].length - k.mu.all.waiting[StateIdle].length
}

// Open is how many connections are open, without those beyond the limit.
func (k *Connections) Open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.all.open
}

func newConnCounts(link int) connCounts {
	return connCounts{waiting: [2]queue{StateNew: {link: link}, StateIdle: {link: link}}}
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
			case <-k.over:
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
	now := time.Since(k.began)
	victim, _ := k.mu.all.victim(now, k.limit)
	return victim != nil && victim.tracking.state == StateNew && now-victim.tracking.since < k.minAge
}

// evictedConn is a connection to end, and how.
type evictedConn struct {
	conn    *PacedConn
	onEvict func()
}

func (l evictedConn) end() {
	if l.onEvict != nil {
		l.onEvict()
		return
	}
	l.conn.Cut()
}

func (k *Connections) admitLocked(c *PacedConn, from netip.Addr) (evicted []evictedConn) {
	evict := func(c *PacedConn, reason string) {
		evicted = append(evicted, evictedConn{c, c.tracking.onEvict})
		k.forgetLocked(c)
		k.metrics.evicted.WithLabelValues(reason).Inc()
	}
	full := false
	limit := func(y *connCounts, most int) {
		if y == nil || most <= 0 || y.open < most {
			return
		}
		if victim, why := y.victim(time.Since(k.began), most); victim != nil {
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

// victim is the connection to evict, and why; nil if all are active.
func (y *connCounts) victim(now time.Duration, most int) (*PacedConn, string) {
	first, idle := y.waiting[StateNew].first, y.waiting[StateIdle].first
	late := first != nil && now-first.tracking.since > newConnTimeout
	switch {
	case late, first != nil && y.waiting[StateNew].length*floodShare > most:
		return first, evictedNew
	case idle != nil:
		return idle, evictedIdle
	}
	return first, evictedNew
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
	since   time.Duration // since connections.began
	links   [2]link       // in a queue of all, and in one of its peer's
	peer    *connCounts   // nil: its peer has no limit
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
