package cache

import "time"

// minHistoryAge is the age that history reaches back to when as little as possible is kept: a quiet
// client has a bookmark each minute, so a client that loses its connection can resume (W-230).
const minHistoryAge = 75 * time.Second

// SetShortHistory drops history while memory is short: events older than 75 s, whatever room there
// is, and the old states made from it. A quiet resource trims nothing by itself, so SetShortHistory
// is called now and then as long as this is to hold. It reports whether it dropped anything.
func (r *Resource) SetShortHistory(short bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.shortHistory = short
	if !short {
		return false
	}
	before := r.log.First()
	r.trim()
	if r.log.First() == before {
		return false
	}
	r.exactSnapshots.drop()
	return true
}

// trim lets history go that is beyond the limits. Callers hold mu.
func (r *Resource) trim() {
	limits := r.limits
	kept := limits.HistoryBytes / 2 // whatever its age, so that a burst does not cost young history
	if r.mu.shortHistory {
		kept, limits.HistoryMinAge = 0, min(limits.HistoryMinAge, minHistoryAge)
	}
	r.log.trim(limits, kept, r.now())
}
