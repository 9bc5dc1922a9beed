package mirror

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"spillway/internal/mirror/states"
)

const (
	// minRetryInterval and maxRetryInterval are how long it takes until what the apiserver refuses is
	// tried again: at first, and at most. With a fifth more, and what an attempt takes, that is less
	// than 30 s.
	minRetryInterval = 2 * time.Second
	maxRetryInterval = 20 * time.Second
	// maxCostlyRetryInterval is the longest pause where an attempt reads a complete state, or where
	// one is in vain as a rule.
	maxCostlyRetryInterval = 5 * time.Minute
)

// mirrorState is the state of a resource's mirror, which outlives it: a mirror that is refused
// ends, and another one is tried.
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
		resource: resource, version: version, retry: states.Pace{First: s.retryFirst, Longest: maxRetryInterval},
		Machine: states.NewMachine(func(t states.Transition) {
			// An empty label is none to Prometheus.
			s.transitions.WithLabelValues(string(t.To.Kind()), cmp.Or(string(t.To.Cause().Why), "none")).Inc()
			s.lines.Tell(resource, version, t)
		}),
	}
}

// next plans another attempt after a failure. Callers hold Set.mu.
func (s *mirrorState) next(why states.Why) time.Time {
	s.retry.Longest = maxRetryInterval
	if why == states.WhyMalformed || why == states.WhyUncacheable {
		s.retry.Longest = maxCostlyRetryInterval
	}
	s.due = s.retry.Next(time.Now())
	return s.due
}

// waiting reports that it is too early for another attempt.
func (s *mirrorState) waiting() bool {
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
	return slices.CompactFunc(all, func(a, b *mirrorState) bool { // two names of one that is missing
		return a.resource == b.resource && a.version == b.version
	})
}
