package fanout

import (
	"errors"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// ErrInitialObjectDeleted says that an object which the client was sent as initial state went away
// before the state could be declared complete. Such a stream is ended cleanly: clients start again
// at once, while a DELETED among the initial events would leave a ghost in some of them (W-215).
var ErrInitialObjectDeleted = errors.New("an initial object went away before the end of the initial events")

// Hold makes the cursor return changes as part of the initial events: what appears or changes is
// ADDED, with its new version (design D7). Release ends that.
func (c *Cursor) Hold() { c.holding = true }

// Release lets events through as they are again.
func (c *Cursor) Release() { c.holding = false }

// Land makes a cursor for the client from a state on, if it has what it may see of that, once it
// has everything that Next returned. Close it, and the one that has landed. Otherwise it returns
// nil, and Next returns what keeps the client from landing.
func (c *Cursor) Land(s *cache.Snapshot) *Cursor {
	if !c.has(s) {
		return nil
	}
	landed, err := c.hub.For(c.owner).After(s, c.selector, c.encoding)
	if err != nil {
		return nil // a gap was closed meanwhile
	}
	if !c.hub.resource.Log().Reaches(c.position) { // what landed is in another history
		landed.Close()
		return nil
	}
	return landed
}

// has reports that the cursor has passed a state's place in the log, and nothing after it that the
// client sees. Progress is no such thing; what came and went again is, although it leaves the state
// as it was.
func (c *Cursor) has(s *cache.Snapshot) bool {
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
