// Package auth finds out who sends a request, whether they may have what it asks for, and whether those who watch still may.
//
// Invariant: who or what could not be asked about is never taken for allowed. Nobody is let in by an error, by an answer older than the
// caches' few seconds, or by anything that an earlier request on the same connection proved: every request is authenticated from its own
// bytes, and every running watch is asked about again (design D12).
//
// Upstream decides everything: tokens by TokenReview, permissions by SubjectAccessReview. Only certificates are verified here, as they
// never reach upstream; and where the operator says so, Rights answer yes where upstream would, by what they have proven to be upstream's
// state. What k8s.io/apiserver has for the same tasks is followed to the letter and not imported: its packages bring
// feature gates, metrics registries, informers and CEL with them, have real clocks, and bound neither reviews under way nor the age of an
// answer by when it was asked for. The module test holds this package against them instead, and against a real apiserver.
package auth

import "time"

const (
	// AllowedFor and DeniedFor are how long an answer of upstream's counts, from when it was asked for: a token that it knows and a
	// permission either way, and a token that it refuses or an answer that did not come.
	AllowedFor = 10 * time.Second
	DeniedFor  = time.Second
	// upstreamTokens is how long kube-apiserver itself remembers that a token is good (TokenSuccessCacheTTL), so that a TokenReview may
	// tell of the past. What it decides about permissions is not remembered there, but for an authorizer that is a webhook: its answers
	// are as old as the operator of the apiserver allows.
	upstreamTokens = 10 * time.Second
)
