package clientconn

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Connections are those of clients, on all listeners: how many there may be, of all clients and of
// one peer, and who has to make room for another one.
//
// A connection is worth what its client has done with it. One that has yet to bring a whole request
// (it is *arriving*) costs whoever opens it nothing, so a flood is made of those; one between two
// requests (it is *resting*) is closed sooner or later anyway, which clients know how to take; one
// that is being answered or watched is what the proxy is for, and is never closed for another. So
// at the limit a new connection takes the place of the one that
//
//   - has been arriving for longest, if that is longer than who means well needs (arrivalPatience), or if so many are arriving that they are
//     a flood;
//   - else has been resting for longest;
//   - else has been arriving for longest.
//
// Nobody is displaced before he has had a moment to arrive (arrivalLeast): until then the next one
// waits in the kernel's queue, behind those who came before him. Otherwise a flood that comes back
// as fast as it is displaced would displace whoever needs longer than that.
//
// Where all are busy, a few more than the limit are taken, to tell them so: their requests are
// answered 429, with a time to come back. Beyond those few the one that has waited longest for that
// is cut.
//
// Invariant: a connection is counted from when it is accepted until it is closed, or told to go,
// once.
type Connections struct {
	// Static after construction.
	most    int // 0: no limit
	perPeer int // 0: no limit
	least   time.Duration
	over    <-chan struct{} // closed when nobody is to wait any more; nil: never
	metrics *ConnMetrics
	began   time.Time // what guests count from: there are as many as connections, and a time.Time is large

	mu struct {
		sync.Mutex
		all     tally
		peers   map[netip.Addr]*tally // empty without perPeer
		surplus queue                 // those beyond the limit that are to be told so
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
	// surplusMost is how many connections beyond the limit are told that there are too many.
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
				return // whoever asked for it closes what it gets
			}
		}
	}
}

// busyArrivingLocked reports that who would have to make room has just come.
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

// victim is who has to make room, and why; nil if everybody is busy.
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
