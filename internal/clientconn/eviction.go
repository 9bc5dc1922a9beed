package clientconn

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

// EvictionPolicy is how long clients may take nothing of what they requested. While memory is short
// it is less than configured, since such a client holds memory here and in the kernel. The nil
// policy always is as configured.
type EvictionPolicy struct {
	hurried atomic.Bool

	// What is held for clients that do not take it, apart from what Go counts.
	parked   atomic.Int64 // slots whose socket is full
	starting atomic.Int64 // states and large lists that are being sent

	pins pins

	// Static; 0: the constants of these names.
	CrowdedRate float64
	CrowdedFor  time.Duration
}

const (
	// hastyStall is how long a client may take nothing while memory is short, and hastyRate what it
	// must take of a large answer then, in bytes per second of the time that it is waited for.
	// Otherwise any progress will do.
	hastyStall = 2 * time.Second
	hastyRate  = 8 * crowdedRate
	// crowdedRate is what a client must take of a large answer while others wait for room for
	// theirs, once it was waited for crowdedFor.
	crowdedRate = 64 << 10
	crowdedFor  = 10 * time.Second
	// OfferBytesLimit is how many bytes of a watch a socket is offered at a time, at most.
	OfferBytesLimit = 64 << 10
	// ParkedBytes is how many bytes the kernel is assumed to hold for a client that takes nothing: the
	// last offer, on top of notSentLow.
	ParkedBytes = OfferBytesLimit + notSentLow
	// LookAgainInterval is how long a write waits at most before it looks whether it is still to be as
	// patient.
	LookAgainInterval = time.Second
)

// StallTimeout is how long a client may take nothing now, where usual is configured.
func (h *EvictionPolicy) StallTimeout(usual time.Duration) time.Duration {
	if h != nil && h.hurried.Load() && usual > 0 {
		return min(usual, hastyStall)
	}
	return usual
}

// pin and unpin tell of an answer that keeps old state alive; nil: there is none.
func (h *EvictionPolicy) pin(p *pin) {
	if h != nil && p != nil {
		h.pins.add(p)
	}
}

func (h *EvictionPolicy) unpin(p *pin) {
	if h != nil && p != nil {
		h.pins.drop(p)
	}
}

// EndCrowded ends the most expensive of the large answers whose clients are slow, since another
// waits for room.
func (h *EvictionPolicy) EndCrowded() {
	h.pins.condemn(cmp.Or(h.CrowdedRate, crowdedRate), cmp.Or(h.CrowdedFor, crowdedFor), ErrCrowded, math.MaxInt)
}

// EndSlow ends the most expensive of the large answers whose clients are too slow while memory is
// short.
func (h *EvictionPolicy) EndSlow() {
	h.pins.condemn(hastyRate, hastyStall, ErrSlow, condemnPart)
}

// SetAggressive makes the server impatient, or patient again, and reports whether that is a change.
func (h *EvictionPolicy) SetAggressive(on bool) (changed bool) { return h.hurried.Swap(on) != on }

// Park counts a slot whose socket is full.
func (h *EvictionPolicy) Park() { h.count(1, 0) }

// Unpark counts a slot whose socket has room again.
func (h *EvictionPolicy) Unpark() { h.count(-1, 0) }

// BeginState counts a state that is being sent.
func (h *EvictionPolicy) BeginState() { h.count(0, 1) }

// EndState counts a state that has been sent, or given up.
func (h *EvictionPolicy) EndState() { h.count(0, -1) }

func (h *EvictionPolicy) count(parked, starting int64) {
	if h != nil {
		h.parked.Add(parked)
		h.starting.Add(starting)
	}
}

// KernelBytes is about what the kernel holds for clients that have yet to take it.
func (h *EvictionPolicy) KernelBytes() int64 {
	return (h.parked.Load() + h.starting.Load()) * ParkedBytes
}

// Parked is how many slots wait for their clients.
func (h *EvictionPolicy) Parked() int64 { return h.parked.Load() }
