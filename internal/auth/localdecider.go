package auth

import "context"

// DecideFunc answers a question without the API server; false: the API server is to answer.
type DecideFunc[Q, A any] func(digest Digest, q Q) (Answer[A], bool)

// ReviewFunc has the API server answer a question now, without a turn, and remembers the answer.
type ReviewFunc[Q, A any] func(ctx context.Context, digest Digest, q Q) Answer[A]

// LocalDecider answers questions by state that it has proven to be the API server's. Package
// auth/rbac has the only one; here it is an interface, so that requests depend on neither mirrors
// nor signatures.
//
// Invariant: it never denies, and what it allows, the API server allowed within AnswerTTL. A review
// checks some of its answers.
type LocalDecider interface {
	// Tokens is what decides about tokens for one of these audiences; nil: nothing does. limit bounds
	// the tokens that it remembers.
	Tokens(audiences []string, limit int, review ReviewFunc[Secret, TokenVerdict]) DecideFunc[Secret, TokenVerdict]
	// Access is what decides about permissions; nil: nothing does.
	Access(review ReviewFunc[ReviewRequest, AccessStatus]) DecideFunc[ReviewRequest, AccessStatus]
}
