package flowcontrol

import (
	"maps"
	"net/netip"
	"testing"
)

func TestOnePeerHasHalfOfThePool(t *testing.T) {
	refused := map[Reason]int{}
	p := NewHeaderBudget(100<<20, func(r Reason) { refused[r]++ })
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	third := netip.MustParseAddr("10.0.0.3")
	if !p.Take(one, 50<<20) || p.Take(one, 1) || !p.Take(other, 40<<20) || p.Take(third, 20<<20) {
		t.Error("the shares are not halves")
	}
	if want := map[Reason]int{ReasonShare: 1, ReasonLimit: 1}; !maps.Equal(refused, want) {
		t.Errorf("counted as refused: %v, want %v", refused, want)
	}
	p.Give(one, 50<<20)
	p.Give(other, 40<<20)
	if p.HeldBytes() != 0 || len(p.mu.peers) != 0 {
		t.Errorf("%d bytes are held, by %d peers", p.HeldBytes(), len(p.mu.peers))
	}
}
