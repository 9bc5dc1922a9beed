// Package ring joins one goroutine that writes and any number that read: a Ring holds the most
// recent items, and a Signal wakes the readers.
//
// Invariant: the writer never waits for a reader, and a reader never sees an item that is not
// complete.
package ring

import (
	"slices"
	"sync/atomic"
)

// chunkSize is how many items are allocated together: small enough that a ring holds few items that
// are trimmed, and large enough that a new list of chunks is rare.
const chunkSize = 64

// Ring keeps the most recent items appended by one goroutine. Any number of others read it by
// position, without locks. A reader that falls behind the oldest item kept finds nothing (see At).
//
// Items live in chunks that are never written again once full, and never reused: a reader that
// still holds one keeps it in memory by itself, so no reader has to be registered or waited for. A
// circular array would reuse slots, and then every read needs a check that it was not overtaken.
// The price is one small allocation per chunkSize items. How much is kept is the owner's decision
// (Trim), because only the owner knows how large an item is.
type Ring[T any] struct {
	// Written by the appending goroutine, read by all. Readers load head first: the view loaded after
	// it then holds every item below head that has not been trimmed.
	head atomic.Uint64
	view atomic.Pointer[view[T]]
}

// view is an immutable list of chunks; positions first ≤ p < head are readable. Chunk i starts at
// base + i·chunkSize.
type view[T any] struct {
	first  uint64
	base   uint64
	chunks []*[chunkSize]T
}

// New makes a ring whose first item will have the given position.
func New[T any](position uint64) *Ring[T] {
	r := &Ring[T]{}
	r.head.Store(position)
	r.view.Store(&view[T]{first: position, base: position})
	return r
}

// Append adds an item and returns its position. Only one goroutine may append at a time.
func (r *Ring[T]) Append(item T) uint64 {
	pos := r.head.Load()
	r.put(pos, item)
	r.head.Store(pos + 1)
	return pos
}

// AppendAll adds items so that readers see all of them or none, and returns the position of the
// first.
func (r *Ring[T]) AppendAll(items []T) uint64 {
	pos := r.head.Load()
	for i := range items {
		r.put(pos+uint64(i), items[i])
	}
	r.head.Store(pos + uint64(len(items)))
	return pos
}

// put writes an item that readers do not see yet, because it lies at or above head.
func (r *Ring[T]) put(pos uint64, item T) {
	v := r.view.Load()
	i := pos - v.base
	if i/chunkSize == uint64(len(v.chunks)) {
		chunks := make([]*[chunkSize]T, len(v.chunks)+1)
		copy(chunks, v.chunks)
		chunks[len(v.chunks)] = new([chunkSize]T)
		v = &view[T]{first: v.first, base: v.base, chunks: chunks}
		r.view.Store(v)
	}
	v.chunks[i/chunkSize][i%chunkSize] = item
}

// Head is the position that the next item will have.
func (r *Ring[T]) Head() uint64 { return r.head.Load() }

// First is the position of the oldest item kept; equal to Head when the ring is empty.
func (r *Ring[T]) First() uint64 { return r.view.Load().first }

// At is the item at a position below Head, or false if it was trimmed. The item must not be
// changed.
func (r *Ring[T]) At(pos uint64) (*T, bool) {
	v := r.view.Load()
	if pos < v.first {
		return nil, false
	}
	i := pos - v.base
	return &v.chunks[i/chunkSize][i%chunkSize], true
}

// Trim forgets the items below pos. Only the appending goroutine may trim.
func (r *Ring[T]) Trim(pos uint64) {
	v := r.view.Load()
	pos = min(pos, r.head.Load())
	if pos <= v.first {
		return
	}
	drop := (pos - v.base) / chunkSize
	chunks := v.chunks
	if drop > 0 {
		chunks = slices.Clone(chunks[drop:]) // a slice of the old ones would hold all of them
	}
	r.view.Store(&view[T]{first: pos, base: v.base + drop*chunkSize, chunks: chunks})
}

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

// Wait returns a channel that the next Wake closes. Call it first, and then look at the state that
// is waited for.
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

// Subscribe makes every Wake from now on call w. Call it first, and then look at the state.
func (s *Signal) Subscribe(w Waker) {
	s.replace(func(old []Waker) []Waker { return append(slices.Clip(old), w) })
}

// Unsubscribe undoes Subscribe. A Wake that is under way may still call w.
func (s *Signal) Unsubscribe(w Waker) {
	s.replace(func(old []Waker) []Waker {
		return slices.DeleteFunc(slices.Clone(old), func(o Waker) bool { return o == w })
	})
}

// replace replaces the subscribers by what change makes of them.
func (s *Signal) replace(change func([]Waker) []Waker) {
	for {
		old := s.subscribers.Load()
		var next []Waker
		if old != nil {
			next = *old
		}
		if next = change(next); s.subscribers.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Wake closes the channel that waiters hold and calls the subscribers. Change the state first.
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
