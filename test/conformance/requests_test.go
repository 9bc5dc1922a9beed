package conformance

import (
	"slices"
	"testing"
)

// testRequests asks, over plain HTTP and over TLS, what is answered at once.
func (s *suite) testRequests(t *testing.T) {
	all := slices.Concat(lists(), objects(), refusals(), formats(), others())
	t.Run("plain", func(t *testing.T) { s.runAll(t, s.plain, slices.Concat(all, users())) })
	t.Run("tls", func(t *testing.T) { s.runAll(t, s.secure, all) })
}
