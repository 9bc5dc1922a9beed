package cache

import "time"

// leastAge is how old history is at least when as little as possible is kept: a quiet client has a
// bookmark each minute, so that who loses his connection can go on where he was (W-230).
const leastAge = 75 * time.Second

// Shorten keeps only the youngest history while memory is short: events older than 75 s go although
// there were room for them, and so do the old states that were made of it. As long as it is to
// hold, it is called now and then, since a quiet resource trims nothing by itself. It reports
// whether there was anything to let go of.
func (r *Resource) Shorten(short bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.short = short
	if !short {
		return false
	}
	before := r.log.First()
	r.trim()
	if r.log.First() == before {
		return false
	}
	r.recent.drop()
	return true
}

// trim lets history go that is beyond the limits. Callers hold mu.
func (r *Resource) trim() {
	limits := r.limits
	kept := limits.HistoryBytes / 2 // whatever its age, so that a burst does not cost young history
	if r.mu.short {
		kept, limits.HistoryMinAge = 0, min(limits.HistoryMinAge, leastAge)
	}
	r.log.trim(limits, kept, r.now())
}
