package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// tokens finds out whose a token is, by reviews.
type tokens struct {
	hasher    *Hasher
	audiences []string
	reviewer  *Reviewer
	reviews   *reviews[Secret, TokenVerdict]
}

// TokenVerdict is what is known of a token.
type TokenVerdict struct {
	Identity *Identity // that it proves; nil: it is refused
	Refusal  error     // why it is refused
	Expires  time.Time // when the token says that it ends
}

var (
	errRefusedToken = errors.New("upstream does not know the token")
	errAudience     = errors.New("the token is for another audience")
	errNameless     = errors.New("the token belongs to no user")
	errUnaskable    = errors.New("a review would ask about another token")
	errReplaced     = errors.New("the user of the token has a U+FFFD, which may stand for another byte")
)

func newTokens(o AuthenticatorOptions, hasher *Hasher) *tokens {
	t := &tokens{hasher: hasher, audiences: slices.Clone(o.Audiences), reviewer: o.Reviewer}
	opts := reviewsOptions[Secret, TokenVerdict]{
		bounds: bounds{remembered: o.MaxTokens, underWay: o.MaxReviews},
		ask:    t.review, isGood: func(v TokenVerdict) bool { return v.Identity != nil }, until: proofUntil,
		user:  func(Secret) string { return "" }, // the review is to find it
		clock: o.Clock, count: o.Metrics.countAnswers(reviewOfToken),
	}
	if o.Local != nil && len(o.Audiences) > 0 {
		opts.newLocal = func(review ReviewFunc[Secret, TokenVerdict]) DecideFunc[Secret, TokenVerdict] {
			return o.Local.Tokens(t.audiences, o.MaxTokens, review)
		}
	}
	t.reviews = newReviews(opts)
	return t
}

// key names a token, and the audiences of its review.
func (t *tokens) key(token Secret) Digest {
	return t.hasher.Sum(append([]string{"token", token.Reveal()}, t.audiences...)...)
}

// review has the API server say whose a token is.
func (t *tokens) review(ctx context.Context, token Secret) (TokenVerdict, error) {
	if !isReviewable(token) {
		return TokenVerdict{Refusal: errUnaskable}, nil
	}
	status, err := t.reviewer.token(ctx, token, t.audiences)
	if err != nil {
		return TokenVerdict{}, err
	}
	return t.verdict(status, tokenExpiry(token.Reveal())), nil
}

// isReviewable reports that a review asks about exactly this token. A review is JSON, and the API
// server trims the token that it reads there. In a request, the API server does not trim a token
// that is followed by more.
func isReviewable(token Secret) bool {
	text := token.Reveal()
	return isText(text) && strings.TrimSpace(text) == text
}

// verdict decides what a review says. The review must say that the token is authenticated, and name
// its user. If the review names audiences, the answer must name one of those: an API server that
// names none has not looked at them, and vouches for its own alone. A user name that JSON may have
// changed on the way is not used: the request passes through, with its token.
func (t *tokens) verdict(s authenticationv1.TokenReviewStatus, expires time.Time) TokenVerdict {
	switch {
	case !s.Authenticated:
		return TokenVerdict{Refusal: errRefusedToken}
	case s.User.Username == "" || s.User.Username == anonymousUser:
		return TokenVerdict{Refusal: errNameless}
	case len(t.audiences) > 0 &&
		!slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(t.audiences, a) }):
		return TokenVerdict{Refusal: errAudience}
	}
	user := NewIdentity(s.User)
	if user.HasReplacementCharacter() {
		return TokenVerdict{Refusal: errReplaced}
	}
	return TokenVerdict{Identity: user, Expires: expires}
}

// proofUntil is how long a proof counts: until the token's own end at most, when it is reviewed
// again. One that the API server accepts after its end (for a minute) is reviewed as often as one
// that it refuses.
func proofUntil(a Answer[TokenVerdict]) time.Time {
	switch end := a.Value.Expires; {
	case a.Err != nil || a.Value.Identity == nil:
		return a.At.Add(FailureTTL)
	case end.IsZero() || end.After(a.At.Add(AnswerTTL)):
		return a.At.Add(AnswerTTL)
	case end.After(a.At):
		return MonotonicEnd(end, a.At)
	}
	return a.At.Add(FailureTTL)
}
