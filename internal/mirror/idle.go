package mirror

import (
	"time"

	"spillway/internal/mirror/states"
)

// idleCause is why an idle mirror ends.
var idleCause = states.Cause{Why: states.WhyIdle, Text: "no client asks for it"}

// dropIdle ends the mirrors on demand without a request and without a watch for so long, until the
// mirrors end. A later request waits for a new first state.
func (s *Set) dropIdle(after time.Duration) {
	for s.pause(min(after/4, time.Minute)) {
		s.dropIdleSince(time.Now().Add(-after))
	}
}

func (s *Set) dropIdleSince(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := *s.running.Load()
	for gvr, e := range s.mu.entries { // the refused ones, long after the last request for them
		if e.state != nil && running[gvr] == nil && !s.isNamed(gvr) && e.state.State().Next().Before(since) {
			s.forgetLocked(gvr, e.state, idleCause)
		}
	}
	for gvr, m := range running {
		if !s.isNamed(gvr) && !m.lastUsed().After(since) && m.hub.Feeds() == 0 {
			s.detachAndEndLocked(m, idleCause)
		}
	}
}
