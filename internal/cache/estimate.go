package cache

import "spillway/internal/object"

const (
	// sampledObjectsLimit is how many objects EstimateBytes matches with a selector.
	sampledObjectsLimit = 5000
	// countedObjectsLimit is how many objects CountSelected matches with a selector.
	countedObjectsLimit = 10_000
)

// EstimateBytes is about how many bytes of JSON a selector selects. It is exact if at most
// sampledObjectsLimit objects have to be matched with the selector. Otherwise these are a sample:
// the first objects by key, so that it favours the first namespaces.
func (s *Snapshot) EstimateBytes(sel object.Selector) int64 {
	if sel.IsEverything() {
		return s.Bytes
	}
	// The total is known: the scan may stop after the sample.
	scopeIsAll := sel.Scope().IsEverything() && !s.hasIndexFor(sel)
	var sampled, selected, scanned int64 // bytes; selected are of the sampled
	visited := 0
	s.scanScope(sel, "", func(o *object.Object) bool {
		size := int64(o.Size())
		scanned += size
		if visited++; visited <= sampledObjectsLimit {
			sampled += size
			if sel.Matches(o) {
				selected += size
			}
		}
		return visited <= sampledObjectsLimit || !scopeIsAll
	})
	switch {
	case visited <= sampledObjectsLimit:
		return selected
	case scopeIsAll:
		scanned = s.Bytes
	}
	return int64(float64(selected) * float64(scanned) / float64(sampled))
}

// CountSelected counts the selected objects whose key is at least from, up to limit. It may count
// too few: it matches the selector with the first countedObjectsLimit objects only. For a selector
// of everything it ignores from, and so may count too many: the number of all objects is known, and
// that of the later ones is not.
func (s *Snapshot) CountSelected(sel object.Selector, from string, limit int) int {
	if sel.IsEverything() {
		return min(s.Len(), limit)
	}
	selected, visited := 0, 0
	s.scanScope(sel, from, func(o *object.Object) bool {
		if visited++; sel.Matches(o) {
			selected++
		}
		return selected < limit && visited < countedObjectsLimit
	})
	return selected
}

// scanScope is Scan for the objects in the selector's scope, selected or not. If an index finds the
// selected ones, it leaves out those that the index does not find.
func (s *Snapshot) scanScope(sel object.Selector, from string, f func(*object.Object) bool) {
	scope := sel.Scope()
	s.scanCandidates(sel, from, func(o *object.Object) bool { return !scope.Matches(o) || f(o) })
}
