package mirror

import (
	"time"

	"spillway/internal/mirror/states"
)

// idleReason is why what is idle is given up.
const idleReason = "no client asks for it"

// dropIdle ends the mirrors on demand without a request and without a watch for so long, until the
// mirrors end. A later request waits for a new first state.
func (m *Set) dropIdle(after time.Duration) {
	for m.pause(min(after/4, time.Minute)) {
		m.dropIdleSince(time.Now().Add(-after))
	}
}

func (m *Set) dropIdleSince(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	running := *m.running.Load()
	for gvr, e := range m.mu.entries { // the refused ones, long after the last request for them
		if e.state != nil && running[gvr] == nil && !m.isNamed(gvr) && e.state.State().Next().Before(since) {
			m.forget(gvr, e.state, states.Cause{Why: states.WhyIdle, Text: idleReason})
		}
	}
	for gvr, one := range running {
		if m.isNamed(gvr) || one.used().After(since) || one.hub.Feeds() > 0 {
			continue
		}
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyIdle, Text: idleReason})
		one.end()
	}
}
