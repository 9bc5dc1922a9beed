package conformance

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// testRequests sends, over plain HTTP and over TLS, the requests that are answered at once.
func (s *suite) testRequests(t *testing.T) {
	all := slices.Concat(lists(), objects(), refusals(), formats(), others())
	before, counted := s.answered(t), s.plain.memory.Load()
	t.Run("plain", func(t *testing.T) { s.runAll(t, s.plain, slices.Concat(all, users())) })
	// The source of an answer is read off a header; the proxy's own count must agree.
	seen := s.plain.memory.Load() - counted
	if rise := s.answered(t) - before; rise != seen {
		t.Errorf("the proxy counts %d answers of its own, %d were seen", rise, seen)
	}
	t.Run("tls", func(t *testing.T) { s.runAll(t, s.secure, all) })
	t.Run("h2", func(t *testing.T) { s.runAll(t, s.secure2, slices.DeleteFunc(all, scenario.brokenPath)) })
}

// brokenPath reports that the path's escapes are broken, which no client sends in HTTP/2.
func (c scenario) brokenPath() bool {
	path, _, _ := strings.Cut(c.Target, "?")
	_, err := url.PathUnescape(path)
	return err != nil
}

// answered is how many requests the plain proxy has answered without one upstream: from memory, or
// with a refusal.
func (s *suite) answered(t *testing.T) int64 {
	t.Helper()
	return int64(s.plain.metric(t, "spillway_cached_requests_total") +
		s.plain.metric(t, "spillway_rejected_requests_total") +
		s.plain.metric(t, `spillway_authorization_attempts_total{result="denied"`))
}
