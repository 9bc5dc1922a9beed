package cache

import (
	"bytes"

	"spillway/internal/object"
)

// ReplaceRepresentation takes over how the API server shows objects now, and returns how many it
// shows otherwise than before. objects is a complete state that was requested since the change.
// What an object looks like is a function of its resourceVersion and of a representation. A new
// version of the API server or of a definition changes the representation without any event (design
// D2). So the bytes are replaced without one, as the API server does.
//
// A version that the list does not share with the state comes, or came, with an event of its own.
// What history holds of older versions stays in the old representation, so no reader may start in
// it any more. Open streams go on. The alternative, a seam or an end for each of them, would show
// clients a change that the API server itself does not show.
func (r *Resource) ReplaceRepresentation(objects []*object.Object) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.IsReady() {
		return 0
	}
	changed := 0
	for _, o := range objects {
		old, ok := r.mu.tree.Get(o)
		if !ok || old.RV != o.RV || old.UID != o.UID || bytes.Equal(old.JSON(), o.JSON()) {
			continue
		}
		r.mu.tree.Set(o)
		r.accountLocked(old, o)
		changed++
	}
	if changed > 0 {
		r.forgetRepresentationLocked(r.CompleteRV())
		r.publishLocked(r.CompleteRV())
	}
	return changed
}

// forgetRepresentationLocked forgets what is known in an old representation of the time before rv.
// Callers publish then.
func (r *Resource) forgetRepresentationLocked(rv uint64) {
	r.mu.generation++ // a state that was taken before is not what the API server shows
	r.log.raiseFloor(rv)
	r.exactSnapshots.drop()
}
