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
// An *arriving* connection has not sent a whole request. It costs its client nothing, so floods
// consist of those. An *idle* one is between two requests. It is closed sooner or later anyway, and
// clients handle that. An *active* one is being answered or watched, and is never evicted. So at
// the limit a new connection replaces the one that
//
//   - has been arriving for longest, if that is longer than arrivalPatience, or if so many are
//     arriving that they are a flood;
//   - else has been idle for longest;
//   - else has been arriving for longest.
//
// No connection is evicted before arrivalLeast: until then the next one waits in the kernel's
// queue. Otherwise a flood that reconnects as fast as it is evicted would evict every client that
// needs longer.
//
// Where all are active, a few more than the limit are accepted, and their requests are answered 429
// with Retry-After. Beyond those few the one that has waited for its request for longest is cut.
//
// Invariant: a connection is counted once, from when it is accepted until it is closed or evicted.
type Connections struct {
	// Static after construction.
	most    int // 0: no limit
	perPeer int // 0: no limit
	least   time.Duration
	over    <-chan struct{} // closed when no connection waits any more; nil: never
	metrics *ConnMetrics
	began   time.Time // what guests count from: there are as many as connections, and a time.Time is large

	mu struct {
		sync.Mutex
		all     tally
		peers   map[netip.Addr]*tally // empty without perPeer
		surplus queue                 // those beyond the limit, which are answered 429
	}
}

const (
	// arrivalPatience is how long a connection may take for its first whole request before others go
	// first: a TLS handshake and a head are a few round trips.
	arrivalPatience = 5 * time.Second
	// arrivalLeast is how long a connection has for it in any case.
	arrivalLeast = 2 * time.Second
	// admitAgain is how often is looked whether there is room for one that waits.
	admitAgain = 10 * time.Millisecond
	// floodShare is the part of the limit, one in so many, from which on those that are arriving are a
	// flood.
	floodShare = 4
	// surplusMost is how many connections beyond the limit are answered 429.
	surplusMost = 128
)

// tally is the connections of which there is a limit together: all, or those of one peer.
type tally struct {
	peer    netip.Addr // static; invalid: all
	open    int
	waiting [2]queue // arriving and resting
}

// NewConnections limits connections, in all and those of one peer; 0: not. Once over is closed,
// nothing waits for room.
func NewConnections(most, perPeer int, m *ConnMetrics, over <-chan struct{}) *Connections {
	k := &Connections{most: most, perPeer: perPeer, least: arrivalLeast, over: over, metrics: m, began: time.Now()}
	k.mu.all = newTally(0)
	k.mu.surplus = queue{link: 0}
	k.mu.peers = map[netip.Addr]*tally{}
	return k
}

// AdmitAtOnce gives no connection a moment to arrive before another may take its place. It is
// called before the first.
func (k *Connections) AdmitAtOnce() { k.least = 0 }

// ActiveConnections is how many connections are answered or watched.
func (k *Connections) ActiveConnections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.all.open - k.mu.all.waiting[Arriving].length - k.mu.all.waiting[Idle].length
}

func newTally(link int) tally {
	return tally{waiting: [2]queue{Arriving: {link: link}, Idle: {link: link}}}
}

// admit counts a connection that has been accepted, and ends those that make room for it, which may
// have to be waited for. The nil connections count nothing.
func (k *Connections) admit(c *PacedConn) {
	if k == nil {
		return
	}
	c.guest.at = k
	from := peerOf(c.Conn)
	for waiting := true; waiting; {
		k.mu.Lock()
		var leaving []leaver
		if waiting = k.busyArrivingLocked(); !waiting {
			leaving = k.admitLocked(c, from)
		}
		k.mu.Unlock()
		for _, l := range leaving {
			l.end()
		}
		if waiting {
			select {
			case <-time.After(admitAgain):
			case <-k.over:
				return // the caller of Accept closes the connection
			}
		}
	}
}

// busyArrivingLocked reports that the connection that would be evicted has just arrived.
func (k *Connections) busyArrivingLocked() bool {
	if k.most <= 0 || k.mu.all.open < k.most {
		return false
	}
	now := time.Since(k.began)
	victim, _ := k.mu.all.victim(now, k.most)
	return victim != nil && victim.guest.phase == Arriving && now-victim.guest.since < k.least
}

// leaver is a connection that has to go, and how.
type leaver struct {
	conn  *PacedConn
	leave func()
}

func (l leaver) end() {
	if l.leave != nil {
		l.leave()
		return
	}
	l.conn.Cut()
}

func (k *Connections) admitLocked(c *PacedConn, from netip.Addr) (leaving []leaver) {
	expel := func(c *PacedConn, reason string) {
		leaving = append(leaving, leaver{c, c.guest.leave})
		k.forgetLocked(c)
		k.metrics.expelled.WithLabelValues(reason).Inc()
	}
	full := false
	limit := func(y *tally, most int) {
		if y == nil || most <= 0 || y.open < most {
			return
		}
		if victim, why := y.victim(time.Since(k.began), most); victim != nil {
			expel(victim, why)
		} else {
			full = true
		}
	}
	limit(k.mu.peers[from], k.perPeer)
	limit(&k.mu.all, k.most)
	if full {
		if k.mu.surplus.length >= surplusMost {
			expel(k.mu.surplus.first, expelledSurplus)
		}
		k.enterLocked(c, surplus)
		return leaving
	}
	k.mu.all.open++
	k.metrics.open.Inc()
	if c.guest.peer = k.peerLocked(from); c.guest.peer != nil {
		c.guest.peer.open++
	}
	k.enterLocked(c, Arriving)
	return leaving
}

// peerLocked is the tally of a peer; nil if it has no limit.
func (k *Connections) peerLocked(from netip.Addr) *tally {
	if k.perPeer <= 0 || !from.IsValid() {
		return nil
	}
	p := k.mu.peers[from]
	if p == nil {
		made := newTally(1)
		p = &made
		p.peer = from
		k.mu.peers[from] = p
	}
	return p
}

// victim is the connection to evict, and why; nil if all are active.
func (y *tally) victim(now time.Duration, most int) (*PacedConn, string) {
	first, rested := y.waiting[Arriving].first, y.waiting[Idle].first
	late := first != nil && now-first.guest.since > arrivalPatience
	switch {
	case late, first != nil && y.waiting[Arriving].length*floodShare > most:
		return first, expelledArriving
	case rested != nil:
		return rested, expelledIdle
	}
	return first, expelledArriving
}

// peerOf is where a connection comes from; invalid for a unix socket, whose peers are all this
// machine.
func peerOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
