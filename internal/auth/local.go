package auth

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// ReviewRequest is whether an identity may do something.
type ReviewRequest struct {
	Who  *Identity
	What Attributes
}

// Decide answers a question without upstream; false: upstream is to answer.
type Decide[Q, A any] func(key Digest, q Q) (Answer[A], bool)

// Review has upstream answer a question now, without a turn, and remembers the answer.
type Review[Q, A any] func(ctx context.Context, key Digest, q Q) Answer[A]

// LocalDecider answers questions by state that it has proven to be upstream's. Package auth/rbac
// has the only one; here it is an interface, so that requests depend on neither mirrors nor
// signatures.
//
// Invariant: it never denies, and what it allows, upstream allowed within AllowedFor. A review
// checks some of its answers.
type LocalDecider interface {
	// Tokens is what decides about tokens for one of these audiences; nil: nothing does. remembered
	// bounds the tokens that it remembers.
	Tokens(audiences []string, remembered int, review Review[Secret, TokenVerdict]) Decide[Secret, TokenVerdict]
	// Access is what decides about permissions; nil: nothing does.
	Access(review AccessReview) AccessDecide
}

// AccessReview has upstream answer whether an identity may do something.
type AccessReview = Review[ReviewRequest, authorizationv1.SubjectAccessReviewStatus]

// AccessDecide answers the same without upstream.
type AccessDecide = Decide[ReviewRequest, authorizationv1.SubjectAccessReviewStatus]
