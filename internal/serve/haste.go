package serve

import (
	"sync/atomic"
	"time"
)

// haste is how patient the server is with clients that do not take what they asked for. While memory is short it is not: what such a client
// keeps from being freed, here and in the kernel, would in the end be everybody's. The nil haste is always as patient as it was told to be.
type haste struct {
	hurried atomic.Bool

	// What is held for clients that do not take it, apart from what Go counts.
	parked   atomic.Int64 // slots whose socket is full
	starting atomic.Int64 // states and large lists that are being sent
}

const (
	// hastyStall and hastyRate are what a client must do while memory is short.
	hastyStall = 2 * time.Second
	hastyRate  = 8 * minRate
	// parkedOutside is what the kernel is reckoned to hold for one that takes nothing: what it was offered last, which is at most a turn, on
	// top of notSentLow.
	parkedOutside = turnSize + notSentLow
	// looksAgain is how long a write waits at most before it looks whether it is still to be as patient.
	looksAgain = time.Second
)

// stall is how long a client may take nothing who otherwise may for so long.
func (h *haste) stall(usual time.Duration) time.Duration {
	if h != nil && h.hurried.Load() && usual > 0 {
		return min(usual, hastyStall)
	}
	return usual
}

// rate is what a client must take that keeps old state alive, in bytes per second.
func (h *haste) rate() float64 {
	if h != nil && h.hurried.Load() {
		return hastyRate
	}
	return minRate
}

// park and unpark count slots whose sockets are full.
func (h *haste) park()   { h.count(1, 0) }
func (h *haste) unpark() { h.count(-1, 0) }

// start and started count states that are being sent.
func (h *haste) start()   { h.count(0, 1) }
func (h *haste) started() { h.count(0, -1) }

func (h *haste) count(parked, starting int64) {
	if h != nil {
		h.parked.Add(parked)
		h.starting.Add(starting)
	}
}

// outside is about what the kernel holds for clients that have yet to take it.
func (h *haste) outside() int64 { return (h.parked.Load() + h.starting.Load()) * parkedOutside }

// Outside is about how many bytes the kernel holds for clients that do not take what was sent to them. It is reckoned, since what a kernel
// tells of it is either that of a whole machine or takes a system call for each client.
func (s *Server) Outside() int64 { return s.haste.outside() }

// Hasten makes the server impatient, or patient again, with clients that do not take what they asked for.
func (s *Server) Hasten(on bool) {
	if s.haste.hurried.Swap(on) == on || !on {
		return
	}
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.mu.streams))
	for st := range s.mu.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	for _, st := range streams { // a slot that is parked looks late otherwise
		st.poke()
	}
}

// Economize lets hardly any large answers be made at the same time, or as many as usual.
func (s *Server) Economize(on bool) { s.opts.Limiter.economize(on) }
