package cache

import "spillway/internal/object"

const (
	// sampledObjectsLimit is how many objects a selector is matched with to estimate the bytes that it
	// selects.
	sampledObjectsLimit = 5000
	// countedObjectsLimit is how many objects a selector is matched with to count those that it
	// selects.
	countedObjectsLimit = 10_000
)

// EstimateBytes is about how many bytes of JSON a selector selects of the state. It is exact unless
// the selector would have to be matched with more than sampledObjectsLimit objects.
func (s *Snapshot) EstimateBytes(sel object.Selector) int64 {
	if sel.IsEverything() {
		return s.Bytes
	}
	scansAll := sel.Scope().IsEverything() && !s.hasIndexFor(sel)
	var sampled, selected, scanned int64 // bytes; selected are of the sampled
	objects := 0
	s.scanScope(sel, "", func(o *object.Object) bool {
		size := int64(o.Size())
		scanned += size
		if objects++; objects <= sampledObjectsLimit {
			sampled += size
			if sel.Matches(o) {
				selected += size
			}
		}
		return objects <= sampledObjectsLimit || !scansAll
	})
	switch {
	case objects <= sampledObjectsLimit:
		return selected
	case scansAll:
		scanned = s.Bytes
	}
	return int64(float64(selected) * float64(scanned) / float64(sampled))
}

// CountSelected counts the objects that a selector selects of the state, from the key from on, up
// to limit. It matches the selector with at most countedObjectsLimit objects. A selector of
// everything counts them all, whatever from is.
func (s *Snapshot) CountSelected(sel object.Selector, from string, limit int) int {
	if sel.IsEverything() {
		return min(s.Len(), limit)
	}
	selected, matched := 0, 0
	s.scanScope(sel, from, func(o *object.Object) bool {
		if matched++; sel.Matches(o) {
			selected++
		}
		return selected < limit && matched < countedObjectsLimit
	})
	return selected
}

// scanScope is Scan for the objects in the selector's scope, selected or not. If an index has the
// selected ones, it is Scan for these.
func (s *Snapshot) scanScope(sel object.Selector, from string, f func(*object.Object) bool) {
	if !s.hasIndexFor(sel) {
		sel = sel.Scope()
	}
	s.Scan(sel, from, f)
}
