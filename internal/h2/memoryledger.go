package h2

import (
	"net/http"
	"net/netip"
	"time"
)

// Bounds are what a connection may make the process hold of its requests' heads, and of short
// answers that its client does not take. Sizes are those in memory: decoded, and with what joining
// header fields adds.
//
// A connection has an allowance of its own. It is small until a request has proven its sender
// (Response.Prove), because until then anything may have opened the connection. A head beyond Head
// bytes is taken from a pool that all connections share.
type Bounds struct {
	Head     int64         // bytes of one head, beyond which it is large and comes from the pool
	Unproven int64         // bytes of a connection that has proven nothing
	Proven   int64         // bytes of another; what exceeds them comes from the pool
	Handlers uint32        // that run at a time for a connection that has proven nothing
	Arrival  time.Duration // for a head in several frames
	Large    time.Duration // for a large head, from when it has become large

	// Reserve takes bytes for a peer from the pool, or reports that it has none left. Release gives
	// them back.
	Reserve func(peer netip.Addr, bytes int64) bool
	Release func(peer netip.Addr, bytes int64)
	// Credentials reports whether a request names its sender. No other may have a large head.
	Credentials func(*http.Request) bool
	// Refuse answers a request whose large head is not taken.
	Refuse http.Handler
}

const (
	streamCost    = 1 << 10 // of a request, beside its fields
	fieldCost     = 200     // of a field in the maps that hold it, beside its bytes
	remainderCost = 768     // of an answer that waits for its client, beside its bytes
	// memoryTimeout is how long a request waits, unread, for others of its connection to end or to
	// prove something.
	memoryTimeout = 250 * time.Millisecond
	// unprovenFlood is outboxFlood of a connection that has proven nothing.
	unprovenFlood = 64 << 10
	// unprovenBodies is what is left of such a connection's window to the bodies that a handler
	// reads: a body that waits for a handler must not keep those from their end.
	unprovenBodies = firstWindow / 2
	// unprovenWaiting is how many requests of a connection that has proven nothing wait for a
	// handler, those included that were reset.
	unprovenWaiting = 64
	// unprovenRemainders is how many answers of such a connection wait for its client to open a
	// window. Beside their own bytes they keep pages from the system: they lie among what their
	// handlers have freed.
	unprovenRemainders = 4
	// unservedHeads is how many heads, as long as an ordinary one may be, such a connection has
	// decoded and then refused, or reset as malformed, before it receives GOAWAY.
	unservedHeads = 16
)

// claim is what one head or answer holds: a part of its connection's allowance, and of the pool.
type claim struct {
	own, pooled int64
	large       bool
}

func (cl *claim) total() int64 { return cl.own + cl.pooled }

// memoryLedger adds up the claims of a connection. Guarded by Conn.mu.
//
// Invariant: held is the sum of the claims' own parts, and never exceeds the allowance.
type memoryLedger struct {
	bounds        *Bounds // static; nil: nothing is bounded
	peer          netip.Addr
	claimedBytes  int64
	large         int // claims that are large
	proven        bool
	unservedHeads int64         // bytes of heads that were decoded and not served, while nothing was proven
	waitTimedOut  bool          // a wait for room timed out, and nothing has been given back since
	freed         chan struct{} // rings when something has been given back, or proven
}

func (l *memoryLedger) allowance() int64 {
	if l.proven {
		return l.bounds.Proven
	}
	return l.bounds.Unproven
}

// grow adds n bytes to a claim, or reports that there is no room for them.
func (l *memoryLedger) grow(cl *claim, n int64) bool {
	if l.bounds == nil {
		return true
	}
	if cl.pooled == 0 && cl.own+n <= l.bounds.Head {
		if l.claimedBytes+n <= l.allowance() {
			l.claimedBytes += n
			cl.own += n
			return true
		}
		if !l.proven {
			return false
		}
	}
	if !cl.large && cl.total()+n > l.bounds.Head {
		if !l.proven && l.large > 0 {
			return false
		}
		cl.large = true
		l.large++
	}
	if !l.bounds.Reserve(l.peer, n) {
		return false
	}
	cl.pooled += n
	return true
}

// shrink gives back all of a claim but n bytes.
func (l *memoryLedger) shrink(cl *claim, n int64) {
	less := cl.total() - n
	if l.bounds == nil || less <= 0 {
		return
	}
	pooled := min(less, cl.pooled)
	if pooled > 0 {
		l.bounds.Release(l.peer, pooled)
	}
	cl.pooled -= pooled
	cl.own -= less - pooled
	l.claimedBytes -= less - pooled
	if cl.large && cl.total() == 0 {
		cl.large = false
		l.large--
	}
	l.signalFreed()
}

// adopt has one claim hold what another did.
func (l *memoryLedger) adopt(cl, other *claim) {
	cl.own, cl.pooled = cl.own+other.own, cl.pooled+other.pooled
	if other.large && cl.large {
		l.large--
	}
	cl.large = cl.large || other.large
	*other = claim{}
}

func (l *memoryLedger) free(cl *claim) { l.shrink(cl, 0) }

func (l *memoryLedger) signalFreed() {
	l.waitTimedOut = false
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// claimBytes is grow for the reader: while requests of the connection are being handled, it waits a
// moment for what they give back or prove.
func (c *Conn) claimBytes(cl *claim, n int64) bool {
	c.mu.Lock()
	defer c.unlockAndFlush()
	var end time.Time
	for !c.ledger.grow(cl, n) {
		switch {
		case c.err != nil, c.handlers.running == 0, c.ledger.waitTimedOut, cl.total()+n > c.ledger.bounds.Head:
			return false
		case end.IsZero():
			end = time.Now().Add(memoryTimeout)
		case !time.Now().Before(end):
			c.ledger.waitTimedOut = true
			return false
		}
		c.unlockAndFlush()
		late := time.NewTimer(time.Until(end))
		select {
		case <-c.ledger.freed:
		case <-late.C:
		}
		late.Stop()
		c.mu.Lock()
	}
	return true
}

// Prove notes that the sender of the request is known: its connection may have as much as any known
// client.
func (w *Response) Prove() { w.stream.conn.markProven() }

// Prover is Prove for a caller that learns it later, even after the request.
func (w *Response) Prover() (prove func()) { return w.stream.conn.markProven }

// IsProven reports that the connection need prove nothing more.
func (w *Response) IsProven() bool {
	c := w.stream.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	return !c.isUnprovenLocked()
}

func (c *Conn) markProven() {
	c.mu.Lock()
	defer c.unlockAndFlush()
	if c.ledger.proven {
		return
	}
	if c.ledger.proven = true; c.opts.Proven != nil {
		c.opts.Proven()
	}
	c.openWindowLocked()
	c.ledger.signalFreed()
	c.startWaitingLocked()
}

// isUnprovenLocked reports that the connection is bounded as one that anything may have opened.
func (c *Conn) isUnprovenLocked() bool { return c.ledger.bounds != nil && !c.ledger.proven }

// outboxLimitLocked is how many bytes in the outbox a handler adds nothing to: what a client does
// not read is held, too.
func (c *Conn) outboxLimitLocked() int {
	if c.isUnprovenLocked() {
		return minFrame
	}
	return outboxFull
}

// floodLimitLocked is how many bytes may be in the outbox when a frame is put that cannot wait.
// More end the connection.
func (c *Conn) floodLimitLocked() int {
	if c.isUnprovenLocked() {
		return unprovenFlood
	}
	return outboxFlood
}

// isBodyOverLimitLocked reports that what has come of the body of a request that waits for a
// handler takes the window that earlier requests need.
func (c *Conn) isBodyOverLimitLocked(s *Stream) bool {
	return c.isUnprovenLocked() && s.call != nil && c.inflow.left < unprovenBodies
}
