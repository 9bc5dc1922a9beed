package auth

import "time"

// Outcome is the result of an attempt to authenticate a request. Unless it is Authenticated, the
// request gets nothing from memory: it passes through unchanged, and the API server answers it in
// its own words.
type Outcome string

// The outcomes, which are also the labels of metrics.
const (
	// Authenticated: the identity is known.
	Authenticated Outcome = "success"
	// Anonymous: the request shows no credentials that are looked at here. What the API server makes
	// of it depends on its flags.
	Anonymous Outcome = "anonymous"
	// Refused: the request shows credentials that are not valid.
	Refused Outcome = "failure"
	// Impersonating: the request has Impersonate-* headers, and nothing else of it was looked at. The
	// API server judges them, for two reasons. Whether they are allowed depends on feature gates that
	// cannot be seen from outside (constrained impersonation, KEP-5284). And the API server's audit
	// log names both users only if the API server itself impersonates.
	Impersonating Outcome = "impersonation"
	// Unknown: the API server did not answer a review.
	Unknown Outcome = "error"
)

// Outcomes are all of them, so that each is a metric from the start.
var Outcomes = []Outcome{Authenticated, Anonymous, Refused, Impersonating, Unknown}

// Result is what is known of the identity that sends a request.
type Result struct {
	Outcome Outcome
	// Identity is nil unless Authenticated.
	Identity *Identity
	// Credential is what the identity was proven by; nil unless Authenticated.
	Credential *Credential
	// At is when that was known: when the review was sent, or a certificate was verified.
	At time.Time
	// HasCertificate: the client sent a certificate, valid or not. The API server does not see it, so
	// a request that passes through has lost a part of what it was sent with.
	HasCertificate bool
	// Err says why, if Refused or Unknown. It holds no credentials.
	Err error
}
