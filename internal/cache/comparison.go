package cache

import (
	"bytes"

	"spillway/internal/object"
)

// Comparison compares a state with the API server's at the same resourceVersion. Two states at one
// resourceVersion are equal, or one of them is wrong: no event under way can excuse a difference.
type Comparison struct {
	state       *Snapshot
	sharedKeys  int // keys that both have
	missingKeys int // keys that only the API server has
	unequal     int // shared keys with another version, or with other bytes of one version
}

// Compare begins a comparison.
func (s *Snapshot) Compare() *Comparison { return &Comparison{state: s} }

// CompareVersion takes the version of one of the API server's objects, each once.
func (c *Comparison) CompareVersion(key string, rv uint64) {
	o, ok := c.state.Get(key)
	switch {
	case !ok:
		c.missingKeys++
		return
	case o.RV != rv:
		c.unequal++
	}
	c.sharedKeys++
}

// CompareBytes takes one of the API server's objects whose version was taken already.
func (c *Comparison) CompareBytes(upstreams *object.Object) {
	o, ok := c.state.Get(upstreams.Key)
	if ok && o.RV == upstreams.RV && !bytes.Equal(o.JSON(), upstreams.JSON()) {
		c.unequal++
	}
}

// Differences is how many objects differ, once every version has been taken: those that only one of
// the two has, and those that are not equal.
func (c *Comparison) Differences() int {
	return c.missingKeys + c.unequal + c.state.Len() - c.sharedKeys
}
