package cache

import (
	"bytes"

	"spillway/internal/object"
)

// Comparison compares a state with what upstream says of its own at the same resourceVersion. Two
// that are at one resourceVersion are equal, or one of them is wrong: nothing that is on its way
// can excuse a difference.
type Comparison struct {
	state   *Snapshot
	seen    int // keys that both have
	missing int // here
	other   int // of the same key: another version, or other bytes of one version
}

// Compare begins a comparison.
func (s *Snapshot) Compare() *Comparison { return &Comparison{state: s} }

// CompareVersion takes the version of one of upstream's objects, each once.
func (c *Comparison) CompareVersion(key string, rv uint64) {
	o, ok := c.state.Get(key)
	switch {
	case !ok:
		c.missing++
		return
	case o.RV != rv:
		c.other++
	}
	c.seen++
}

// CompareBytes takes one of upstream's objects whose version was taken already.
func (c *Comparison) CompareBytes(upstreams *object.Object) {
	o, ok := c.state.Get(upstreams.Key)
	if ok && o.RV == upstreams.RV && !bytes.Equal(o.JSON(), upstreams.JSON()) {
		c.other++
	}
}

// Differences is how many objects differ, once every version has been taken: those that are missing
// here, those that are here alone, and those that are other ones.
func (c *Comparison) Differences() int {
	return c.missing + c.other + c.state.Len() - c.seen
}

// KeyAt is the key of the object that has i before it, "" if there are not so many.
func (s *Snapshot) KeyAt(i int) string {
	if o, ok := s.tree.GetAt(i); ok {
		return o.Key
	}
	return ""
}

// IsCurrent reports whether a state belongs to the present history, in the present representation.
func (r *Resource) IsCurrent(s *Snapshot) bool { return s.generation == r.Generation() }
