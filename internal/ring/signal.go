package ring

import "sync/atomic"

// Signal wakes everybody who waits for something to change. The zero value is ready.
//
// Waiting is a channel that closes and is replaced, so that it composes with contexts and timers, which a sync.Cond does
// not. The channel exists only while somebody waits: waking nobody costs one atomic swap and no allocation.
type Signal struct {
	ch atomic.Pointer[chan struct{}]
}

// Wait returns a channel that the next Wake closes. Take it before looking at the state that is waited for.
func (s *Signal) Wait() <-chan struct{} {
	for {
		if p := s.ch.Load(); p != nil {
			return *p
		}
		c := make(chan struct{})
		if s.ch.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// Wake closes the channel that waiters hold. Change the state first.
func (s *Signal) Wake() {
	if p := s.ch.Swap(nil); p != nil {
		close(*p)
	}
}
