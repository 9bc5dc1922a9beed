package mirror

import (
	"time"

	"spillway/internal/mirror/states"
)

// idleCause is why an idle mirror ends.
var idleCause = states.Cause{Why: states.WhyIdle, Text: "no client asks for it"}

// dropIdle runs until the Set ends. It ends each mirror on demand that had neither a request nor a
// watch for the given time. A later request begins a new mirror, and waits for its first state.
func (s *Set) dropIdle(after time.Duration) {
	for s.pause(min(after/4, time.Minute)) {
		s.dropIdleSince(time.Now().Add(-after))
	}
}

func (s *Set) dropIdleSince(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := *s.running.Load()
	// A refused mirror does not run. It is forgotten when no request has begun it again since it
	// could.
	for gvr, e := range s.mu.entries {
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
