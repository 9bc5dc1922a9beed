package object

import (
	"sync"
	"weak"
)

// EncodingCache bounds the memory of Forms, over all resources that share it. When there is too
// much, forms that were not used since the last look are dropped, in turn (the CLOCK algorithm): an
// order of use would take a lock for every use.
//
// It holds forms weakly, so it keeps alive neither an object nor the forms of one that is gone. It
// finds that a form is gone only as others come: each of these looks at two slots. So it never
// counts less than there is, and has hardly more than twice as many slots as forms. A cleanup by
// the runtime would have to be called for each object that goes.
type EncodingCache struct {
	limit int64 // static

	mu struct {
		sync.Mutex
		bound    int64 // the limit at present
		held     int64
		disabled func(FormKind) bool // kinds that are not kept; nil: none
		slots    []cacheSlot
		free     []int // slots without a form
		hand     int   // the next slot to look at for room
		swept    int   // the next slot to look at for a form that is gone
	}
}

// cacheSlot is one form that is counted; the zero value is none.
type cacheSlot struct {
	form weak.Pointer[Form]
	size int64
}

// NewEncodingCache makes an EncodingCache of limit bytes.
func NewEncodingCache(limit int64) *EncodingCache {
	c := &EncodingCache{limit: limit}
	c.mu.bound = limit
	return c
}

// Remember bounds the forms of the resource's objects by c from now on. Without it they last as
// long as their objects.
func (r *Resource) Remember(c *EncodingCache) { r.encodings.Store(c) }

// Disable drops the forms of some kinds, and keeps none of them from now on: each is made again for
// each use. nil enables all kinds.
func (c *EncodingCache) Disable(kinds func(FormKind) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.disabled = kinds
	if kinds == nil {
		return
	}
	for i, s := range c.mu.slots {
		if s.size == 0 {
			continue
		}
		if f := s.form.Value(); f != nil {
			if !kinds(f.kind) {
				continue
			}
			f.drop()
		}
		c.clearLocked(i)
	}
}

// HeldBytes is how many bytes are counted.
func (c *EncodingCache) HeldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.held
}

// keep counts a form that has been made, and makes room for it. A form that could not be made has
// no bytes, and stays.
func (c *EncodingCache) keep(f *Form) {
	if c == nil || f.err != nil {
		return
	}
	size := f.size()
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > c.mu.bound || c.mu.disabled != nil && c.mu.disabled(f.kind) {
		f.drop()
		return
	}
	c.sweepLocked()
	c.makeRoomLocked(size)
	c.mu.held += size
	c.putLocked(cacheSlot{weak.Make(f), size})
}

// Bound keeps at most limit bytes from now on, or the EncodingCache's own limit if that is less.
func (c *EncodingCache) Bound(limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.bound = min(limit, c.limit)
	c.makeRoomLocked(0)
}

// makeRoomLocked drops forms until there is room for size bytes, which is no more than the bound.
func (c *EncodingCache) makeRoomLocked(size int64) {
	for looks := 0; c.mu.held+size > c.mu.bound; looks++ {
		c.evictNextLocked(looks > 2*len(c.mu.slots)) // forced if forms are used as fast as the hand moves
	}
}

// evictNextLocked drops the form at the hand, unless it was used since the last look and force is
// false.
func (c *EncodingCache) evictNextLocked(force bool) {
	i := c.mu.hand
	c.mu.hand = (i + 1) % len(c.mu.slots)
	s := c.mu.slots[i]
	if s.size == 0 {
		return
	}
	if f := s.form.Value(); f != nil {
		if f.used.Swap(false) && !force {
			return
		}
		f.drop()
	}
	c.clearLocked(i)
}

// sweepLocked clears the next two slots if their forms are gone.
func (c *EncodingCache) sweepLocked() {
	for range min(2, len(c.mu.slots)) {
		i := c.mu.swept
		c.mu.swept = (i + 1) % len(c.mu.slots)
		if s := c.mu.slots[i]; s.size != 0 && s.form.Value() == nil {
			c.clearLocked(i)
		}
	}
}

// clearLocked empties a slot.
func (c *EncodingCache) clearLocked(i int) {
	c.mu.held -= c.mu.slots[i].size
	c.mu.slots[i] = cacheSlot{}
	c.mu.free = append(c.mu.free, i)
}

// putLocked puts a form into a slot.
func (c *EncodingCache) putLocked(s cacheSlot) {
	if n := len(c.mu.free); n > 0 {
		c.mu.slots[c.mu.free[n-1]] = s
		c.mu.free = c.mu.free[:n-1]
		return
	}
	c.mu.slots = append(c.mu.slots, s)
}
