package mirror

import (
	"time"

	"spillway/internal/mirror/states"
)

// staleThreshold is how long upstream must have been of no use for the state to be called old. A
// watch that has to be opened a second time is no outage.
const staleThreshold = 2 * time.Second

// age is how long ago the state was last known to be upstream's; 0 while it is kept current.
// unreachable says that the API server does not answer. A mirror whose own loop is stalled does not
// move its state, so the loop's watch decides, whatever the state is.
func (m *mirror) age() (age time.Duration, unreachable bool) {
	s := m.state.State()
	if !s.Holds() || !m.resource.IsReady() {
		return 0, false
	}
	since, contact := m.reflector.FailingSince()
	switch {
	case !m.reflectorLoop.StalledSince().IsZero(), isStale(m.reflector.UnwatchedSince()):
		return time.Since(m.lastCurrent()), s.Cause().Why == states.WhyUnreachable
	case !isStale(since), s.Kind() == states.KindSynced:
		return 0, false
	}
	return time.Since(contact), s.Cause().Why == states.WhyUnreachable
}

// lastCurrent is when a watch last kept the state current. Pages of a new state are contact, but
// change nothing of it until all of them have come.
func (m *mirror) lastCurrent() time.Time {
	contact, unwatched := m.reflector.Contact(), m.reflector.UnwatchedSince()
	if !unwatched.IsZero() && unwatched.Before(contact) {
		return unwatched
	}
	return contact
}

// isStale reports that staleThreshold has passed since then; the zero time is never.
func isStale(since time.Time) bool { return !since.IsZero() && time.Since(since) >= staleThreshold }
