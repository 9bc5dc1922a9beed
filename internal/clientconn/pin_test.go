package clientconn

import (
	"testing"
	"testing/synctest"
	"time"
)

// While memory is short the most expensive of the slow answers ends first; a fast one never does.
func TestMostExpensivePinEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &EvictionPolicy{}
		pinned := func(bytes int64, taken int) *pin {
			p := &pin{bytes: bytes}
			p.addProgress(taken, time.Minute)
			h.pin(p)
			return p
		}
		fast := pinned(1<<40, 60*lowMemoryRate)
		var slow []*pin
		for i := range 32 {
			slow = append(slow, pinned(int64(i+1), 60*lowMemoryRate-1))
		}
		h.EndSlow()
		for i, p := range slow {
			if condemned := p.evictionReason() != nil; condemned != (i >= 30) {
				t.Errorf("after the first look the pin of %d bytes is condemned: %v", p.bytes, condemned)
			}
		}
		for range 100 {
			h.EndSlow()
		}
		for _, p := range slow {
			if p.evictionReason() != ErrSlow {
				t.Errorf("the pin of %d bytes goes on while memory is short", p.bytes)
			}
		}
		if fast.evictionReason() != nil {
			t.Error("a client that is fast enough was condemned")
		}
		if h.unpin(fast); len(h.pins.all) != 0 {
			t.Errorf("%d pins are left", len(h.pins.all))
		}
	})
}
