package clientconn

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

// EvictionPolicy is how long clients may take nothing of what they requested. While memory is short
// it is less than configured, because such a client holds memory here and in the kernel. The nil
// policy always is as configured.
type EvictionPolicy struct {
	lowMemory atomic.Bool

	// What is held for clients that do not take it, apart from what Go counts.
	parkedWatches   atomic.Int64 // slots whose socket is full
	startingWatches atomic.Int64 // states and large lists that are being sent

	pins pins

	// CrowdedRate and CrowdedPeriod are static; 0: the constants of these names.
	CrowdedRate   float64
	CrowdedPeriod time.Duration
}

const (
	// lowMemoryStallTimeout is how long a client may take nothing while memory is short, and
	// lowMemoryRate what it must take of a large answer then, in bytes per second of the time that
	// writes wait for it. Otherwise any progress will do.
	lowMemoryStallTimeout = 2 * time.Second
	lowMemoryRate         = 8 * crowdedRate
	// crowdedRate is what a client must take of a large answer while others wait for room for
	// theirs, once writes have waited for it for crowdedPeriod.
	crowdedRate   = 64 << 10
	crowdedPeriod = 10 * time.Second
	// OfferBytesLimit is how many bytes of a watch a socket is offered at a time, at most.
	OfferBytesLimit = 64 << 10
	// ParkedBytes is how many bytes the kernel is assumed to hold for a client that takes nothing:
	// the last offer, on top of unsentBytesLimit.
	ParkedBytes = OfferBytesLimit + unsentBytesLimit
	// RecheckInterval is how long a write waits at most before it looks whether its stall timeout
	// has changed.
	RecheckInterval = time.Second
)

// StallTimeout is how long a client may take nothing now, where usual is configured.
func (e *EvictionPolicy) StallTimeout(usual time.Duration) time.Duration {
	if e != nil && e.lowMemory.Load() && usual > 0 {
		return min(usual, lowMemoryStallTimeout)
	}
	return usual
}

// pin notes an answer that keeps old state alive; nil: there is none.
func (e *EvictionPolicy) pin(p *pin) {
	if e != nil && p != nil {
		e.pins.add(p)
	}
}

// unpin notes that an answer keeps nothing alive any more.
func (e *EvictionPolicy) unpin(p *pin) {
	if e != nil && p != nil {
		e.pins.drop(p)
	}
}

// EndCrowded ends one of the large answers whose clients are slow, the most expensive one, because
// another waits for room.
func (e *EvictionPolicy) EndCrowded() {
	const onlyOne = math.MaxInt
	e.pins.evictSlow(cmp.Or(e.CrowdedRate, crowdedRate), cmp.Or(e.CrowdedPeriod, crowdedPeriod), ErrCrowded, onlyOne)
}

// EndSlow ends the most expensive of the large answers whose clients are too slow while memory is
// short.
func (e *EvictionPolicy) EndSlow() {
	e.pins.evictSlow(lowMemoryRate, lowMemoryStallTimeout, ErrSlow, evictedFraction)
}

// SetLowMemory shortens the stall timeout while on is set, and reports whether that is a change.
func (e *EvictionPolicy) SetLowMemory(on bool) (changed bool) { return e.lowMemory.Swap(on) != on }

// Park counts a slot whose socket is full.
func (e *EvictionPolicy) Park() { e.count(1, 0) }

// Unpark counts the slot no longer: its socket has room again.
func (e *EvictionPolicy) Unpark() { e.count(-1, 0) }

// BeginState counts a state that is being sent.
func (e *EvictionPolicy) BeginState() { e.count(0, 1) }

// EndState counts the state no longer: it has been sent, or given up.
func (e *EvictionPolicy) EndState() { e.count(0, -1) }

// count adds to the numbers of watches; the nil policy counts none.
func (e *EvictionPolicy) count(parked, starting int64) {
	if e != nil {
		e.parkedWatches.Add(parked)
		e.startingWatches.Add(starting)
	}
}

// KernelBytes is about what the kernel holds for clients that have yet to take it.
func (e *EvictionPolicy) KernelBytes() int64 {
	return (e.parkedWatches.Load() + e.startingWatches.Load()) * ParkedBytes
}
