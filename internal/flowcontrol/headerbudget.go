package flowcontrol

import (
	"net/netip"
	"sync"
)

// minHeadShare is what one peer may hold of the pool in any case; otherwise half of it.
const minHeadShare = HeadCopies * LargestHeadBytes

// HeaderBudget is a pool of bytes that large heads of requests hold together, over all connections
// of all listeners: from when a head becomes large until nothing needs it any more
// (Limits.HeaderBytes). The nil HeaderBudget has no limit, and counts nothing.
//
// Invariant: held is the sum of what was taken and not given back, over all peers.
type HeaderBudget struct {
	// Static after construction.
	most         int64 // 0: no limit
	countRefusal func(Reason)

	mu struct {
		sync.Mutex
		held  int64
		peers map[netip.Addr]int64
	}
}

// NewHeaderBudget makes a pool of so many bytes; 0: no limit. countRefusal counts the heads that
// get none, by reason.
func NewHeaderBudget(most int64, countRefusal func(Reason)) *HeaderBudget {
	p := &HeaderBudget{most: most, countRefusal: countRefusal}
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
	if p.most > 0 {
		switch {
		case p.mu.peers[peer]+n > max(p.most/2, minHeadShare):
			p.countRefusal(ReasonShare)
			return false
		case p.mu.held+n > p.most:
			p.countRefusal(ReasonLimit)
			return false
		}
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
