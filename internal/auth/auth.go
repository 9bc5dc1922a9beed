// Package auth authenticates requests, and authorizes what they request.
//
// The API server decides: tokens by TokenReview, permissions by SubjectAccessReview. Only
// certificates are verified here, because they never reach the API server. Package auth/rbac
// decides some questions by the API server's state, where the operator says so; package auth/reauth
// reviews running watches again.
//
// Invariant: a request that could not be decided is never allowed. No error admits a request, nor
// does an answer older than the caches' few seconds, nor what an earlier request on the same
// connection proved: every request is authenticated from its own bytes (design D12).
//
// What k8s.io/apiserver has for the same tasks is followed to the letter and not imported. Its
// packages bring feature gates, metrics registries, informers and CEL with them, and use real
// clocks. They bound neither the reviews under way nor the age of an answer by when its question
// was sent. test/e2e/authentication compares this package with them, and with a real API server.
package auth

import "time"

const (
	// AnswerTTL is how long an answer of the API server's counts, from when its question was sent:
	// that a token is good, or that something is allowed or denied.
	AnswerTTL = 10 * time.Second
	// FailureTTL is how long it counts that the API server refused a token, or did not answer.
	FailureTTL = time.Second
	// UpstreamTokenTTL is how long kube-apiserver itself remembers that a token is good
	// (TokenSuccessCacheTTL): a TokenReview may be about the past. It remembers no decisions about
	// permissions, except those of an authorizer that is a webhook: their age is what the operator of
	// the API server allows.
	UpstreamTokenTTL = 10 * time.Second
)
