package mirror

import (
	"time"

	"spillway/internal/mirror/states"
)

// awayThreshold is how long upstream must have been of no use for the state to be called old. A
// watch that has to be opened a second time is no outage.
const awayThreshold = 2 * time.Second

// age is how long ago the state was last known to be upstream's, if it is not kept current; 0 while
// it is. away says that the apiserver does not answer; otherwise it does, and yet nothing keeps the
// state current. A mirror whose own loop is stuck cannot say so: then the clock does, whatever
// state it is in.
func (m *mirror) age() (age time.Duration, away bool) {
	s := m.state.State()
	if !s.Holds() || !m.resource.IsReady() {
		return 0, false
	}
	since, contact := m.reflector.AwaySince()
	switch {
	case !m.watched.StalledSince().IsZero(), isOver(m.reflector.UnwatchedSince()):
		return time.Since(m.lastCurrent()), s.Cause().Why == states.WhyUnreachable
	case !isOver(since), s.Kind() == states.KindSynced:
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

// isOver reports that awayThreshold is over since then; zero: never.
func isOver(since time.Time) bool { return !since.IsZero() && time.Since(since) >= awayThreshold }
