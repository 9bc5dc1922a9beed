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

// BeginInitialEvents makes the cursor return changes as part of the initial events: what appears or
// changes is ADDED, with its new version (design D7).
func (c *Cursor) BeginInitialEvents() { c.initialEvents = true }

// EndInitialEvents makes the cursor return events as they are again.
func (c *Cursor) EndInitialEvents() { c.initialEvents = false }

// RebaseOn returns a cursor from a state on, if everything that the client may see of that state is
// in what Next has returned. Close both cursors. Otherwise it returns nil, and Next returns what
// the client lacks.
func (c *Cursor) RebaseOn(s *cache.Snapshot) *Cursor {
	if !c.hasReached(s) {
		return nil
	}
	rebased, err := c.hub.For(c.owner).After(s, *c.selector, c.encoding)
	if err != nil {
		return nil // a gap was closed meanwhile
	}
	if !c.hub.resource.Log().Reaches(c.position) { // the state is of another history
		rebased.Close()
		return nil
	}
	return rebased
}

// hasReached reports that the cursor has passed a state's place in the log, and nothing after it
// that the client sees. Progress is no such thing; what came and went again is, although it leaves
// the state as it was.
func (c *Cursor) hasReached(s *cache.Snapshot) bool {
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

func (c *Cursor) appendInitial(t object.Type, o *object.Object, rv uint64) (err error) {
	if t == object.Deleted {
		c.initialObjectDeleted = true
		return nil
	}
	c.scratch, err = AppendEvent(c.scratch, c.encoding, object.Added, o, rv)
	return err
}
