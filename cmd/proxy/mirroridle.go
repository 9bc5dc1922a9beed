package main

import (
	"time"

	"go.uber.org/zap"
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
		one.end()
		m.log.Info("no longer mirrored: nobody asks for it", zap.Stringer("resource", one.resource.Info), zap.String("version", gvr.Version))
	}
}
