package chaos

import (
	"sync"
	"time"
)

// effect is what a fault excuses. What no fault of a run excuses is a violation, and so is what
// comes before the fault that would.
type effect int

// The effects.
const (
	cut     effect = iota // connections break, and answers do not come
	refuse                // requests are answered that they cannot be answered now
	seam                  // the mirror missed part of what happened, and shows what came of it
	expire                // clients have to begin again
	remove                // a resource is not there
	rewrite               // what has happened has not happened
	deny                  // an API server that has just begun has not read its rules yet, and denies what they allow
	effects
)

// allowances are the effects that are possible, by the time from which on they are. They do not end
// with their fault: a mirror that was cut off may find out late, and a client even later. Some end
// once every client has received something that happened after all was mended.
type allowances struct {
	mu    sync.Mutex
	begin [effects]time.Time // guarded by mu
	end   [effects]time.Time // guarded by mu
}

func (e *allowances) from(at time.Time, what ...effect) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range what {
		if e.begin[w].IsZero() || at.Before(e.begin[w]) {
			e.begin[w] = at
		}
	}
}

func (e *allowances) until(at time.Time, what ...effect) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range what {
		e.end[w] = at
	}
}

// allow reports whether something is excused at a time.
func (e *allowances) allow(what effect, at time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	begin, end := e.begin[what], e.end[what]
	return !begin.IsZero() && !at.Before(begin) && (end.IsZero() || at.Before(end))
}
