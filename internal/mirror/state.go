package mirror

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"spillway/internal/mirror/states"
)

const (
	// minRetryPause and maxRetryPause are how long it takes until what the API server refuses is tried
	// again: at first, and at most. With a fifth more, and an attempt's duration, that is less than
	// 30 s.
	minRetryPause = 2 * time.Second
	maxRetryPause = 20 * time.Second
	// maxCostlyRetryPause is the longest pause where an attempt reads a complete state, or where most
	// attempts fail.
	maxCostlyRetryPause = 5 * time.Minute
)

// mirrorState is the state of a resource's mirror. It outlives the mirror: after a refusal another
// mirror of the same resource is tried.
type mirrorState struct {
	*states.Machine
	resource, version string

	// Guarded by Set.mu.
	retry states.Pace
	due   time.Time // when a goroutine tries again; zero: none will
}

// newState is the state of a resource that is to be mirrored from now on.
func (s *Set) newState(resource, version string) *mirrorState {
	return &mirrorState{
		resource: resource, version: version, retry: states.Pace{First: s.firstRetryPause, Longest: maxRetryPause},
		Machine: states.NewMachine(func(t states.Transition) {
			// An empty label is none to Prometheus.
			s.transitions.WithLabelValues(string(t.To.Kind()), cmp.Or(string(t.To.Cause().Why), "none")).Inc()
			s.stateLog.Log(resource, version, t)
		}),
	}
}

// loseUntilRetryLocked notes that the resource is not served for a cause, and plans another
// attempt. Callers hold Set.mu.
func (s *mirrorState) loseUntilRetryLocked(cause states.Cause) {
	s.Lose(cause, s.planRetryLocked(cause.Why))
}

// planRetryLocked plans another attempt after a failure. Callers hold Set.mu.
func (s *mirrorState) planRetryLocked(why states.Why) time.Time {
	s.retry.Longest = maxRetryPause
	if why == states.WhyMalformed || why == states.WhyUncacheable {
		s.retry.Longest = maxCostlyRetryPause
	}
	s.due = s.retry.Next(time.Now())
	return s.due
}

// retryAtLocked plans another attempt, as if none had failed. Callers hold Set.mu.
func (s *mirrorState) retryAtLocked(due time.Time) {
	s.retry.Reset()
	s.due = due
	s.Lose(s.State().Cause(), due)
}

// loseLocked notes that the resource is never served, for a cause. Callers hold Set.mu.
func (s *mirrorState) loseLocked(cause states.Cause) {
	s.due = time.Time{}
	s.Lose(cause, s.due)
}

// isWaiting reports that it is too early for another attempt.
func (s *mirrorState) isWaiting() bool {
	now := s.State()
	return now.Kind() == states.KindRefused && time.Now().Before(now.Next())
}

// states are those of all mirrors, and of the resources that are to be mirrored and are not,
// ordered by name.
func (s *Set) states() []*mirrorState {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.mu.missing))
	for _, e := range s.mu.entries {
		if e.state != nil {
			all = append(all, e.state)
		}
	}
	slices.SortFunc(all, func(a, b *mirrorState) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.version, b.version))
	})
	return slices.CompactFunc(all, func(a, b *mirrorState) bool { // a missing one may have two names
		return a.resource == b.resource && a.version == b.version
	})
}
