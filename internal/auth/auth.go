// Package auth authenticates requests and authorizes what they ask for.
//
// Upstream decides: tokens by TokenReview, permissions by SubjectAccessReview. Only certificates
// are verified here, since they never reach upstream. Package auth/rbac decides some questions by
// upstream's state, where the operator says so; package auth/reauth asks about running watches
// again.
//
// Invariant: a request that could not be decided is never taken for allowed. No error admits a
// request, no answer older than the caches' few seconds does, and nothing that an earlier request
// on the same connection proved does: every request is authenticated from its own bytes (design
// D12).
//
// What k8s.io/apiserver has for the same tasks is followed to the letter and not imported: its
// packages bring feature gates, metrics registries, informers and CEL with them, have real clocks,
// and bound neither reviews under way nor the age of an answer by when its question was sent. The
// module test holds this package against them instead, and against a real apiserver.
package auth

import "time"

const (
	// AllowedTTL and DeniedTTL are how long an answer of upstream's counts, from when its question
	// was sent: a token that it knows and a permission either way, and a token that it refuses or
	// an answer that did not come.
	AllowedTTL = 10 * time.Second
	DeniedTTL  = time.Second
	// UpstreamTokenTTL is how long kube-apiserver itself remembers that a token is good
	// (TokenSuccessCacheTTL), so that a TokenReview may tell of the past. It remembers no decisions
	// about permissions, except those of an authorizer that is a webhook: their age is what the
	// operator of the apiserver allows.
	UpstreamTokenTTL = 10 * time.Second
)

// MonotonicEnd is an end that a credential tells, by the wall clock, on the clock that near was
// read from. So a timer that runs until then does not run hours longer after the wall clock was set
// back.
func MonotonicEnd(end, near time.Time) time.Time { return near.Add(end.Sub(near)) }

// minClockStep is by how much a wall clock must have gone back to count as set back: the two
// clocks of a host drift apart by less.
const minClockStep = time.Second

// DetectSetBack reports that the wall clock was set back since a moment, and what it would show now
// if it had not been. An end that a credential tells has come when either has reached it: a
// credential that was over does not become good again.
func DetectSetBack(began, now time.Time) (otherwise time.Time, back bool) {
	otherwise = began.Round(0).Add(now.Sub(began))
	return otherwise, otherwise.Sub(now.Round(0)) >= minClockStep
}
