package conformance

import (
	"slices"
	"testing"
)

// testRequests asks, over plain HTTP and over TLS, what is answered at once.
func (s *suite) testRequests(t *testing.T) {
	all := slices.Concat(lists(), objects(), refusals(), formats(), others())
	before, counted := s.plain.metric(t, "spillway_cached_requests_total"), s.plain.memory.Load()
	t.Run("plain", func(t *testing.T) { s.runAll(t, s.plain, slices.Concat(all, users())) })
	// Who answered is read off a header; the proxy's own count must agree.
	rise := int64(s.plain.metric(t, "spillway_cached_requests_total") - before)
	if seen := s.plain.memory.Load() - counted; rise != seen {
		t.Errorf("the proxy counts %d answers from memory, %d were seen", rise, seen)
	}
	t.Run("tls", func(t *testing.T) { s.runAll(t, s.secure, all) })
}
