package mirror

import (
	"strconv"
	"time"

	"spillway/internal/source"
	"spillway/internal/status"
)

// Statuses are the statuses of all mirrors, those that do not run at present included. watches is
// how many watches each source has. stale are the resources whose states are old because the API
// server does not answer, and oldest is the age of the oldest in seconds.
func (s *Set) Statuses(now time.Time, watches map[*source.Source]int) (
	all []*status.Resource, stale []string, oldest float64) {
	all = []*status.Resource{}
	listed := map[*mirrorState]bool{}
	for _, m := range s.all() {
		r := m.status(now)
		r.Watches = watches[m.source]
		all = append(all, r)
		listed[m.state] = true
	}
	for _, state := range s.states() {
		if !listed[state] {
			r := &status.Resource{Resource: state.resource, Version: state.version, Since: state.State().Since()}
			state.describeIn(r, now)
			all = append(all, r)
		}
	}
	old := s.staleStates()
	return all, old.resources, old.oldest.Seconds()
}

// status describes the mirror.
func (m *mirror) status(now time.Time) *status.Resource {
	up := m.reflector.Status()
	entries, since := m.resource.Log().Span()
	age, _ := m.age()
	r := &status.Resource{
		Resource: m.resource.Info.String(), Version: m.resource.Info.GVR.Version, Synced: m.resource.IsReady(),
		Since: m.createdAt, ResourceVersion: strconv.FormatUint(m.resource.CompleteRV(), 10), HistoryEvents: entries,
		Feeds: m.hub.Feeds(), DispatchLag: m.hub.Lag(), Lists: up.Replaces, Failures: up.Failures,
		ConsistencyCheckMismatches: m.differences.Load(), StateAgeSeconds: age.Seconds(),
	}
	m.state.describeIn(r, now)
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

// describeIn writes the state into a resource's status.
func (s *mirrorState) describeIn(r *status.Resource, now time.Time) {
	state := s.State()
	r.State, r.StateCause, r.StateSince = string(state.Kind()), status.OneLine(state.Cause().Text), state.Since()
	if next := state.Next(); next.After(now) {
		r.NextRetrySeconds = next.Sub(now).Seconds()
	}
}
