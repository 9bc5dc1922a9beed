package object

import "time"

// Event is one change, in the order upstream reported it. Old is the version it replaced; a
// creation has none. New is nil for a deletion, which shows Old at the event's RV (W-104).
//
// Old is kept because a selector's view of a change needs both versions (W-103): an object that
// stops matching is DELETED, as it last matched.
type Event struct {
	New, Old *Object
	RV       uint64
	At       time.Time // when the proxy received it, by its own clock
}

// Object is the newest version the event knows.
func (e *Event) Object() *Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Type is the type of a watch event as the client sees it.
type Type uint8

// The event types of the wire (W-130) that carry an object of the resource.
const (
	Added Type = iota
	Modified
	Deleted
)

// String is the type as the wire spells it.
func (t Type) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	default:
		return "DELETED"
	}
}
