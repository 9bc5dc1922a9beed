package flowcontrol

import (
	"net/netip"
	"testing"
)

func TestOnePeerHasHalfOfThePool(t *testing.T) {
	p := NewHeaderBudget(100 << 20)
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if !p.Take(one, 50<<20) || p.Take(one, 1) || !p.Take(other, 50<<20) || p.Take(other, 1) {
		t.Error("the shares are not halves")
	}
	p.Give(one, 50<<20)
	p.Give(other, 50<<20)
	if p.HeldBytes() != 0 || len(p.mu.peers) != 0 {
		t.Errorf("%d bytes are held, by %d peers", p.HeldBytes(), len(p.mu.peers))
	}
}
