package cache

import "time"

// shortHistoryAge is the age of history that is kept while memory is short: a quiet client has a
// bookmark each minute, so a client that loses its connection can resume (W-230).
const shortHistoryAge = 75 * time.Second

// SetShortHistory makes history short, or as long as usual again. It drops events older than 75 s,
// whatever room there is, and the old states made from them. A quiet resource trims nothing by
// itself, so SetShortHistory is called now and then while memory is short. It reports whether it
// dropped anything.
func (r *Resource) SetShortHistory(short bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.shortHistory = short
	if !short {
		return false
	}
	before := r.log.First()
	r.trimLocked()
	if r.log.First() == before {
		return false
	}
	r.exactSnapshots.drop()
	return true
}

// trimLocked drops history that is beyond the limits.
func (r *Resource) trimLocked() {
	limits := r.limits
	minBytes := limits.HistoryBytes / 2 // whatever its age, so that a burst does not cost young history
	if r.mu.shortHistory {
		minBytes, limits.HistoryMinAge = 0, min(limits.HistoryMinAge, shortHistoryAge)
	}
	r.log.trim(limits, minBytes, r.now())
}
