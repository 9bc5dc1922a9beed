package flowcontrol

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// What large heads of requests hold: bytes of a pool that all connections of all listeners share,
// from when a head becomes large until nothing needs it any more (Limits.HeaderBytes).
const (
	// LargestHeadBytes is the largest head that kube-apiserver takes: net/http's limit, and the buffer
	// that it reads with.
	LargestHeadBytes = http.DefaultMaxHeaderBytes + 4096
	// HeadCopies is how many times a head over HTTP/1.1 is held, about, while it is handled: as it
	// came, in fasthttp's buffer, as fasthttp's fields and raw head, as net/http's header, and as what
	// goes upstream.
	HeadCopies = 6
	// minHeadShare is what one peer may hold of the pool in any case; otherwise half of it.
	minHeadShare = HeadCopies * LargestHeadBytes
)

// HeaderBudget is the bytes that large heads hold together.
//
// Invariant: held is the sum of what was taken and not given back, over all peers.
type HeaderBudget struct {
	most    int64 // static; 0: no limit
	refused atomic.Uint64

	mu struct {
		sync.Mutex
		held  int64
		peers map[netip.Addr]int64
	}
}

// NewHeaderBudget makes a pool of so many bytes; 0: no limit.
func NewHeaderBudget(most int64) *HeaderBudget {
	p := &HeaderBudget{most: most}
	p.mu.peers = map[netip.Addr]int64{}
	return p
}

// Take takes n bytes for a peer, or reports that there are none left for it.
func (p *HeaderBudget) Take(peer netip.Addr, n int64) bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	share := max(p.most/2, minHeadShare)
	if p.most > 0 && (p.mu.held+n > p.most || p.mu.peers[peer]+n > share) {
		p.refused.Add(1)
		return false
	}
	p.mu.held += n
	p.mu.peers[peer] += n
	return true
}

// Give gives n bytes back.
func (p *HeaderBudget) Give(peer netip.Addr, n int64) {
	if p == nil || n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.held -= n
	if p.mu.peers[peer] -= n; p.mu.peers[peer] == 0 {
		delete(p.mu.peers, peer)
	}
}

// HeldBytes is how many bytes are taken.
func (p *HeaderBudget) HeldBytes() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.held
}

// LargeHead is what one large head over HTTP/1.1 holds of the pool. The server has it until the
// answer is sent or the connection is taken over, and an exchange that goes on holds the part that
// it needs.
type LargeHead struct {
	pool *HeaderBudget
	peer netip.Addr

	mu     sync.Mutex
	bytes  int64
	shared bool // an exchange holds it, too
}

// NewLargeHead makes a head of a peer's that holds nothing yet.
func NewLargeHead(pool *HeaderBudget, peer netip.Addr) *LargeHead {
	return &LargeHead{pool: pool, peer: peer}
}

// Grow has the head hold n bytes in all, or reports that there is no room.
func (l *LargeHead) Grow(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.pool.Take(l.peer, n-l.bytes) {
		return false
	}
	l.bytes = n
	return true
}

// Share has an exchange hold the head. The nil head is an ordinary one.
func (l *LargeHead) Share() *LargeHead {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.shared = true
	}
	return l
}

// Handled follows the server's part: what an exchange still needs are two headers of the same
// values.
func (l *LargeHead) Handled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := int64(0)
	if l.shared {
		left = min(l.bytes, 2*l.bytes/HeadCopies)
	}
	l.pool.Give(l.peer, l.bytes-left)
	l.bytes = left
}

// Close follows the end of the exchange.
func (l *LargeHead) Close() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.shared = false
		l.pool.Give(l.peer, l.bytes)
		l.bytes = 0
	}
}
