package main

import (
	"time"

	states "spillway/internal/mirror"
)

// dropIdle ends the mirrors that were made on demand, and that nobody has asked for since or watches, until the mirrors end. Whoever asks
// later waits for a new first state.
func (m *mirrors) dropIdle(after time.Duration) {
	for m.pause(min(after/4, time.Minute)) {
		m.dropIdleSince(time.Now().Add(-after))
	}
}

func (m *mirrors) dropIdleSince(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvr, one := range *m.running.Load() {
		if m.isNamed(gvr) || one.used().After(since) || one.hub.Feeds() > 0 {
			continue
		}
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyIdle, Text: "no client asks for it"})
		one.end()
	}
}
