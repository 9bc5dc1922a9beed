// Package upstream mirrors one upstream resource into a Sink, for ever; it is also the one client
// for everything else upstream: what resources there are, how fresh they are, and the transports
// that requests pass through on.
//
// Invariant: the Sink receives every change of its resource exactly once and in upstream's order,
// from one goroutine, or it receives the complete state again. Whatever goes wrong in between (an
// answer that makes no sense, a Sink that failed) ends in a Replace, never in a gap that stays
// unknown.
package upstream

import (
	"spillway/internal/object"
)

// Sink receives one resource's state and changes, in upstream's order, from one goroutine. When it
// returns an error it receives nothing more until the next Replace, which follows after a backoff.
type Sink interface {
	// Replace is the complete state at rv, unsorted.
	Replace(objects []*object.Object, rv uint64) error
	Add(*object.Object) error
	Update(*object.Object) error
	// Delete is given the last state; its RV is that of the deletion (W-104).
	Delete(*object.Object) error
	// Bookmark is progress: all events up to rv were delivered. b is the template cut from
	// upstream's bookmark.
	Bookmark(b *object.Bookmark, rv uint64) error
}
