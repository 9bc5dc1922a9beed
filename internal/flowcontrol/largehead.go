package flowcontrol

import (
	"net/http"
	"net/netip"
	"sync"
)

const (
	// LargestHeadBytes is the largest head that kube-apiserver takes: net/http's limit, and the buffer
	// that it reads with.
	LargestHeadBytes = http.DefaultMaxHeaderBytes + 4096
	// HeadCopies is how many times a head over HTTP/1.1 is held, about, while it is handled: as it
	// came, in fasthttp's buffer, as fasthttp's fields and raw head, as net/http's header, and as what
	// goes upstream.
	HeadCopies = 6
	// exchangeHeadCopies is how many of these an exchange still needs once the server is done: two
	// headers of the same values.
	exchangeHeadCopies = 2
)

// LargeHead is what one large head over HTTP/1.1 holds of the pool. The server has it until the
// answer is sent or the connection is taken over, and an exchange that goes on holds the part that
// it needs.
type LargeHead struct {
	pool *HeaderBudget
	peer netip.Addr

	mu       sync.Mutex
	bytes    int64
	isShared bool // an exchange holds it, too
}

// NewLargeHead makes a head of a peer's that holds nothing yet.
func NewLargeHead(pool *HeaderBudget, peer netip.Addr) *LargeHead {
	return &LargeHead{pool: pool, peer: peer}
}

// Grow has the head hold n bytes in all, or reports that there is no room.
func (h *LargeHead) Grow(n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pool.Take(h.peer, n-h.bytes) {
		return false
	}
	h.bytes = n
	return true
}

// Share has an exchange hold the head, and returns it. The nil head is an ordinary one.
func (h *LargeHead) Share() *LargeHead {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.isShared = true
	}
	return h
}

// Handled ends the server's part: what remains is what an exchange that holds the head still needs.
func (h *LargeHead) Handled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isShared {
		h.shrinkLocked(min(h.bytes, exchangeHeadCopies*h.bytes/HeadCopies))
	} else {
		h.shrinkLocked(0)
	}
}

// Close ends the exchange's part.
func (h *LargeHead) Close() {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.isShared = false
		h.shrinkLocked(0)
	}
}

func (h *LargeHead) shrinkLocked(n int64) {
	h.pool.Give(h.peer, h.bytes-n)
	h.bytes = n
}
