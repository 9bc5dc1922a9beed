package mirror

import (
	"strconv"
	"time"

	"spillway/internal/source"
	"spillway/internal/status"
)

// Statuses are how all mirrors stand, those that do not run at present included. watches is how
// many watches each source has. stale are the resources whose mirrors receive no events at present,
// and oldest is the age of the oldest of them in seconds.
func (s *Set) Statuses(now time.Time, watches map[*source.Source]int) (
	all []*status.Resource, stale []string, oldest float64) {
	all, stale = []*status.Resource{}, []string{}
	listed := map[*mirrorState]bool{}
	for _, m := range s.all() {
		one := m.status(now)
		one.Watches = watches[m.source]
		all = append(all, one)
		listed[m.state] = true
		if _, isAway := m.age(); isAway {
			stale = append(stale, one.Resource)
			oldest = max(oldest, one.StateAgeSeconds)
		}
	}
	for _, state := range s.states() {
		if !listed[state] {
			one := &status.Resource{Resource: state.resource, Version: state.version, Since: state.State().Since()}
			state.tell(one, now)
			all = append(all, one)
		}
	}
	return all, stale, oldest
}

// status is how the mirror stands.
func (m *mirror) status(now time.Time) *status.Resource {
	up := m.reflector.Status()
	entries, since := m.resource.Log().Span()
	r := &status.Resource{
		Resource: m.resource.Info.String(), Version: m.resource.Info.GVR.Version, Synced: m.resource.IsReady(), Since: m.born,
		ResourceVersion: strconv.FormatUint(m.resource.CompleteRV(), 10), HistoryEvents: entries,
		Feeds: m.hub.Feeds(), DispatchLag: m.hub.Lag(), Lists: up.Replaces, Failures: up.Failures,
		ConsistencyCheckMismatches: m.differing.Load(),
	}
	m.state.tell(r, now)
	age, _ := m.age()
	r.StateAgeSeconds = age.Seconds()
	if !up.Contact.IsZero() {
		r.ContactAgeSeconds = now.Sub(up.Contact).Seconds()
	}
	if !since.IsZero() {
		r.HistorySpanSeconds = now.Sub(since).Seconds()
	}
	if s := m.resource.Snapshot(); s != nil {
		r.Objects, r.ObjectBytes = s.Len(), s.Bytes
	}
	if up.Err != nil {
		r.Error = status.OneLine(up.Err.Error())
	}
	return r
}

// tell adds how the mirror of a resource stands.
func (s *mirrorState) tell(r *status.Resource, now time.Time) {
	state := s.State()
	r.State, r.StateCause, r.StateSince = string(state.Kind()), status.OneLine(state.Cause().Text), state.Since()
	if next := state.Next(); next.After(now) {
		r.NextRetrySeconds = next.Sub(now).Seconds()
	}
}
