package mirror

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/mirror/states"
	"spillway/internal/status"
	"spillway/internal/upstream"
	"spillway/internal/upstream/discovery"
	"spillway/internal/upstream/wire"
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
func (m *Set) newState(resource, version string) *mirrorState {
	return &mirrorState{
		resource: resource, version: version, retry: states.Pace{First: m.retryFirst, Longest: maxRetryInterval},
		Machine: states.NewMachine(func(t states.Transition) {
			// An empty label is none to Prometheus.
			m.transitions.WithLabelValues(string(t.To.Kind()), cmp.Or(string(t.To.Cause().Why), "none")).Inc()
			m.lines.Tell(resource, version, t)
		}),
	}
}

// bareVersion is what a version of an API looks like, other than a group.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// labelsOf are the labels of a resource[.version][.group] that upstream does not serve: those that
// it gets once it is served, as far as they follow from its name.
func labelsOf(name string) (resource, version string) {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) == 1 || !bareVersion.MatchString(parts[1]) {
		return name, ""
	}
	return strings.TrimSuffix(strings.Join(slices.Delete(slices.Clone(parts), 1, 2), "."), "."), parts[1]
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
func (m *Set) states() []*mirrorState {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Collect(maps.Values(m.mu.missing))
	for _, e := range m.mu.entries {
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

// causeOf tells why a mirror has failed from what it failed with.
func causeOf(err error) states.Cause {
	c := states.Cause{Why: states.WhyUnreachable, Text: status.OneLine(err.Error())}
	var status apierrors.APIStatus
	var refusal *discovery.NotMirroredError
	switch {
	case errors.As(err, &refusal):
		c.Why = states.WhyUncacheable
	case errors.Is(err, wire.ErrUncacheable):
		c.Why = states.WhyMalformed
	case !errors.As(err, &status):
		if !upstream.IsUnavailable(err) {
			c.Why = states.WhyRefused // an answer that makes no sense
		}
	default:
		c.Why = causeOfStatus(err, status.Status())
	}
	return c
}

func causeOfStatus(err error, status metav1.Status) states.Why {
	// What is no Status comes from a filter of the apiserver that knows no resource, or from what
	// stands before it.
	foreign := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case status.Code == http.StatusTooManyRequests && foreign:
		return states.WhyOverloaded
	case status.Code >= http.StatusInternalServerError && foreign:
		return states.WhyUnreachable
	case status.Code == http.StatusForbidden, status.Code == http.StatusUnauthorized:
		return states.WhyForbidden
	case status.Code == http.StatusNotFound, status.Code == http.StatusMethodNotAllowed:
		return states.WhyNotServed
	case status.Code == http.StatusGone:
		return states.WhyRelist // the mirror's version is too old, and a complete state follows
	}
	return states.WhyRefused
}
