package object

import (
	"sync"
	"weak"
)

// EncodingCache bounds the memory of Forms, over all resources that share it. When there is too
// much, forms without a use since the last look are dropped, in turn (the CLOCK algorithm): an
// order of use would take a lock for every use.
//
// It holds forms weakly, so that it never keeps an object alive, or what was made of one that is
// gone. What it counts is therefore at least what there is: it finds that a form is gone as others
// come, two slots for each. So slots are never many more than twice as many as forms that are
// there, however many have been, and nothing has to be called for each that goes, as with a cleanup
// of the runtime's.
type EncodingCache struct {
	limit int64 // static

	mu struct {
		sync.Mutex
		bound   int64 // the limit at present
		held    int64
		forgone func(FormKind) bool // kinds that are not kept; nil: none
		slots   []memoSlot
		free    []int // slots without a form
		hand    int   // the next slot to look at for room
		swept   int   // the next slot to look at for a form that is gone
	}
}

// memoSlot is one form that is counted; the zero value is none.
type memoSlot struct {
	form weak.Pointer[Form]
	size int64
}

// NewEncodingCache makes a EncodingCache of limit bytes.
func NewEncodingCache(limit int64) *EncodingCache {
	m := &EncodingCache{limit: limit}
	m.mu.bound = limit
	return m
}

// Remember bounds the forms of the resource's objects by m from now on. Without it they last as
// long as their objects.
func (r *Resource) Remember(m *EncodingCache) { r.memo.Store(m) }

// Disable drops the forms of some kinds, and keeps none of them from now on: each is made again for
// each use. nil ends that.
func (m *EncodingCache) Disable(kinds func(FormKind) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.forgone = kinds
	if kinds == nil {
		return
	}
	for i, s := range m.mu.slots {
		if s.size == 0 {
			continue
		}
		if f := s.form.Value(); f != nil {
			if !kinds(f.kind) {
				continue
			}
			f.drop()
		}
		m.clear(i)
	}
}

// HeldBytes is how many bytes are counted.
func (m *EncodingCache) HeldBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.held
}

// keep counts a form that has been made, and makes room for it. A form without bytes says why there
// are none, and stays.
func (m *EncodingCache) keep(f *Form) {
	if m == nil || f.err != nil {
		return
	}
	size := f.size()
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > m.mu.bound || m.mu.forgone != nil && m.mu.forgone(f.kind) {
		f.drop()
		return
	}
	m.sweep()
	m.makeRoom(size)
	m.mu.held += size
	m.put(memoSlot{weak.Make(f), size})
}

// Bound keeps no more than so many bytes from now on, if that is less than the EncodingCache's
// limit.
func (m *EncodingCache) Bound(limit int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.bound = min(limit, m.limit)
	m.makeRoom(0)
}

// makeRoom drops forms until there is room for so many bytes, which is no more than the bound.
// Callers hold mu.
func (m *EncodingCache) makeRoom(size int64) {
	for looks := 0; m.mu.held+size > m.mu.bound; looks++ {
		m.evictNext(looks > 2*len(m.mu.slots)) // then the others use them as fast as we look
	}
}

// evictNext passes a form that was used since the last look, unless there is no mercy, and drops
// any other. Callers hold mu.
func (m *EncodingCache) evictNext(force bool) {
	i := m.mu.hand
	m.mu.hand = (i + 1) % len(m.mu.slots)
	s := m.mu.slots[i]
	if s.size == 0 {
		return
	}
	if f := s.form.Value(); f != nil {
		if f.used.Swap(false) && !force {
			return
		}
		f.drop()
	}
	m.clear(i)
}

// sweep clears the next two slots if their forms are gone. Callers hold mu.
func (m *EncodingCache) sweep() {
	for range min(2, len(m.mu.slots)) {
		i := m.mu.swept
		m.mu.swept = (i + 1) % len(m.mu.slots)
		if s := m.mu.slots[i]; s.size != 0 && s.form.Value() == nil {
			m.clear(i)
		}
	}
}

// clear empties a slot. Callers hold mu.
func (m *EncodingCache) clear(i int) {
	m.mu.held -= m.mu.slots[i].size
	m.mu.slots[i] = memoSlot{}
	m.mu.free = append(m.mu.free, i)
}

// put takes a slot. Callers hold mu.
func (m *EncodingCache) put(s memoSlot) {
	if n := len(m.mu.free); n > 0 {
		m.mu.slots[m.mu.free[n-1]] = s
		m.mu.free = m.mu.free[:n-1]
		return
	}
	m.mu.slots = append(m.mu.slots, s)
}
