package cache

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"spillway/internal/object"
)

// seam closes a gap in history by the difference of two states (design D5). Let P be the greatest
// resourceVersion that the log has promised and L that of the new list.
//
// Order inside: deletions, stamped P; then additions and changes, ascending by their own
// resourceVersion; then the final deletion; then progress to L. The final deletion is that of the
// object whose own resourceVersion is P, if its name is free and no change carries L. It is stamped
// L, so that a DELETED is newer than the object that it shows. No resourceVersion is minted. The
// alternative, ending every stream as kube-apiserver does, makes each client list again at the
// worst moment.
type seam struct {
	p, l          uint64
	at            time.Time
	deletions     []object.Event
	changes       []object.Event
	finalDeletion []object.Event // one at most
	// hasOtherHistory says that the API server's history is not ours, as after a restore of etcd. No
	// seam can be made.
	hasOtherHistory bool
	// hasOtherBytes says that objects have other bytes at the same resourceVersion.
	hasOtherBytes bool
}

// diffLocked compares the state with a new one, which is sorted by key, at rv. Objects that did not
// change are replaced in listed by the ones already held.
func (r *Resource) diffLocked(listed []*object.Object, rv uint64) *seam {
	s := &seam{p: r.CompleteRV(), l: rv, at: r.now()}
	before := r.mu.tree.Items()
	for len(before) > 0 || len(listed) > 0 {
		switch {
		case len(listed) == 0 || len(before) > 0 && before[0].Key < listed[0].Key:
			s.addDeletion(before[0])
			before = before[1:]
		case len(before) == 0 || listed[0].Key < before[0].Key:
			s.addChange(nil, listed[0])
			listed = listed[1:]
		default:
			listed[0] = s.mergeVersions(before[0], listed[0])
			before, listed = before[1:], listed[1:]
		}
	}
	s.finish()
	return s
}

// mergeVersions compares two versions of one key and returns the one to keep. Equal
// resourceVersions with other bytes are another representation of the same version: replaced
// without an event, as the API server does (design D2).
func (s *seam) mergeVersions(old, new *object.Object) *object.Object {
	switch {
	case old.UID != new.UID:
		s.addDeletion(old)
		s.addChange(nil, new)
	case old.RV != new.RV:
		s.addChange(old, new)
	case bytes.Equal(old.JSON(), new.JSON()):
		return old
	default:
		s.hasOtherBytes = true
	}
	return new
}

func (s *seam) addDeletion(old *object.Object) {
	s.deletions = append(s.deletions, object.Event{Old: old, RV: s.p, At: s.at})
}

// addChange notes a version that the log does not hold. One at or below P was promised already:
// history was rewritten.
func (s *seam) addChange(old, new *object.Object) {
	if new.RV <= s.p {
		s.hasOtherHistory = true
	}
	s.changes = append(s.changes, object.Event{New: new, Old: old, RV: new.RV, At: s.at})
}

// finish orders the events, once all objects are compared.
func (s *seam) finish() {
	if s.l < s.p || s.l == s.p && len(s.deletions) > 0 {
		s.hasOtherHistory = true
	}
	slices.SortFunc(s.changes, func(a, b object.Event) int { return cmp.Compare(a.RV, b.RV) })
	if n := len(s.changes); n > 0 && s.changes[n-1].RV >= s.l {
		return
	}
	for i, e := range s.deletions {
		if e.Old.RV == s.p && !s.hasKey(e.Old.Key) {
			s.deletions = slices.Delete(s.deletions, i, i+1)
			e.RV = s.l
			s.finalDeletion = append(s.finalDeletion, e)
			return
		}
	}
}

// hasKey reports that another object has the key now. A deletion after its addition would delete it
// for clients.
func (s *seam) hasKey(key string) bool {
	return slices.ContainsFunc(s.changes, func(e object.Event) bool { return e.New.Key == key })
}

// completeRV is what the log promises after the seam.
func (s *seam) completeRV() uint64 { return max(s.p, s.l) }

// entries are the seam as it goes into the log; none if nothing new is known. Where no difference
// shows, an object may have come and gone all the same, so that the gap has an end even then.
func (s *seam) entries() []Entry {
	var out []Entry
	add := func(events []object.Event, part Seam) {
		for _, e := range events {
			out = append(out, Entry{Event: e, CompleteRV: s.p, Seam: part})
		}
	}
	add(s.deletions, SeamDeletion)
	add(s.changes, SeamChange)
	add(s.finalDeletion, SeamChange)
	if len(out) == 0 && s.l <= s.p {
		return nil
	}
	return append(out, Entry{Event: object.Event{RV: s.l, At: s.at}, CompleteRV: s.l, Seam: SeamEnd})
}
