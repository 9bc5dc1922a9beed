package fanout

import (
	"errors"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// ErrRetracted says that an object which the client was sent as initial state went away before the state could be declared
// complete. Such a stream is ended cleanly: clients start again at once, while a DELETED among the initial events would
// leave a ghost in some of them (W-215).
var ErrRetracted = errors.New("an initial object went away before the end of the initial events")

// Hold makes the cursor return changes as part of the initial events: what appears or changes is ADDED, with its new
// version (design D7). Release ends that.
func (c *Cursor) Hold() { c.holding = true }

// Release lets events through as they are again.
func (c *Cursor) Release() { c.holding = false }

// Has reports that the client has what it may see of a state, once it has everything that Next returned: the cursor has passed the state's
// place in the log, and nothing after it that the client sees. Progress is no such thing; what came and went again is, although
// it leaves the state as it was. Meaningful while the cursor is not in a seam.
func (c *Cursor) Has(s *cache.Snapshot) bool {
	for position := s.Next; position < c.position; position++ {
		e, ok := c.hub.resource.Log().At(position)
		if !ok {
			return false
		}
		if _, _, seen := c.selector.Seen(&e.Event); seen {
			return false
		}
	}
	return s.Next <= c.position
}

func (c *Cursor) hold(t object.Type, o *object.Object, rv uint64) (err error) {
	if t == object.Deleted {
		c.retracted = true
		return nil
	}
	c.scratch, err = AppendEvent(c.scratch, c.encoding, object.Added, o, rv)
	return err
}
