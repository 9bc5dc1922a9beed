package ring

import (
	"slices"
	"sync/atomic"
)

// Signal wakes all goroutines that wait for something to change. The zero value is ready.
//
// Waiting is a channel that closes and is replaced, so that it composes with contexts and timers,
// which a sync.Cond does not. The channel exists only while a goroutine waits: a wake-up without
// waiters costs one atomic swap and no allocation. A goroutine that waits for many signals at once
// subscribes instead: a channel cannot be one of thousands in a select.
type Signal struct {
	ch          atomic.Pointer[chan struct{}]
	subscribers atomic.Pointer[[]Waker] // immutable: replaced as a whole
}

// Waker is called at each change, by the goroutine that made it. Wake must not block.
type Waker interface{ Wake() }

// Wait returns a channel that the next Wake closes. Take it before looking at the state that is
// waited for.
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

// Subscribe has every change from now on wake w. Look at the state afterwards.
func (s *Signal) Subscribe(w Waker) {
	s.replace(func(old []Waker) []Waker { return append(slices.Clip(old), w) })
}

// Unsubscribe ends that. A Wake that is under way may still reach w.
func (s *Signal) Unsubscribe(w Waker) {
	s.replace(func(old []Waker) []Waker {
		return slices.DeleteFunc(slices.Clone(old), func(o Waker) bool { return o == w })
	})
}

func (s *Signal) replace(f func([]Waker) []Waker) {
	for {
		old := s.subscribers.Load()
		var next []Waker
		if old != nil {
			next = *old
		}
		if next = f(next); s.subscribers.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Wake closes the channel that waiters hold and tells the subscribers. Change the state first.
func (s *Signal) Wake() {
	if p := s.ch.Swap(nil); p != nil {
		close(*p)
	}
	if p := s.subscribers.Load(); p != nil {
		for _, w := range *p {
			w.Wake()
		}
	}
}
