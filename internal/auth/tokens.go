package auth

import (
	"context"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
)

// tokens knows whose a token is, by asking upstream.
type tokens struct {
	hasher    *Hasher
	audiences []string
	reviews   *reviews[Secret, TokenVerdict]
}

// TokenVerdict is what is known of a token.
type TokenVerdict struct {
	Identity *Identity // that it proves; nil: it is refused
	Refusal  error     // why it is refused
	Expires  time.Time // when the token says that it ends
}

func newTokens(r *Reviewer, audiences []string, b bounds, clock clock.PassiveClock) *tokens {
	t := &tokens{
		hasher: NewHasher(), audiences: slices.Clone(audiences), reviews: newReviews[Secret, TokenVerdict](b, clock),
	}
	t.reviews.ask = func(ctx context.Context, token Secret) (TokenVerdict, error) {
		if !askable(token) {
			return TokenVerdict{Refusal: errUnaskable}, nil
		}
		status, err := r.token(ctx, token, t.audiences)
		if err != nil {
			return TokenVerdict{}, err
		}
		return t.read(status, tokenExpiry(token.Reveal())), nil
	}
	t.reviews.good = func(p TokenVerdict) bool { return p.Identity != nil }
	t.reviews.until = proofUntil
	return t
}

// askable reports that a review asks about exactly this token: it is JSON, and upstream trims the
// token that it reads there, but not in a request that says more after it.
func askable(token Secret) bool {
	text := token.Reveal()
	return isText(text) && strings.TrimSpace(text) == text
}

// key names a token, and the audiences of its review.
func (t *tokens) key(token Secret) Digest {
	return t.hasher.Sum(append([]string{"token", token.Reveal()}, t.audiences...)...)
}

// read decides what a review says. The review must say that the token is authenticated, name its
// user, and, if the review names audiences, name those of them that the token is for: an apiserver
// that names none has not looked at them, and vouches for its own alone. A user name that JSON may
// have changed on the way is not used: the request passes through, with its token.
func (t *tokens) read(s authenticationv1.TokenReviewStatus, expires time.Time) TokenVerdict {
	switch {
	case !s.Authenticated:
		return TokenVerdict{Refusal: errRefusedToken}
	case s.User.Username == "" || s.User.Username == anonymousUser:
		return TokenVerdict{Refusal: errNameless}
	case len(t.audiences) > 0 &&
		!slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(t.audiences, a) }):
		return TokenVerdict{Refusal: errAudience}
	}
	who := NewIdentity(s.User)
	if who.HasReplacementCharacter() {
		return TokenVerdict{Refusal: errReplaced}
	}
	return TokenVerdict{Identity: who, Expires: expires}
}

// proofUntil is how long a proof counts: not beyond the token's own end, at which it is reviewed
// again. One that upstream takes after its end (a minute's grace) is reviewed as often as one that
// it refuses.
func proofUntil(a Answer[TokenVerdict]) time.Time {
	switch end := a.Value.Expires; {
	case a.Err != nil || a.Value.Identity == nil:
		return a.At.Add(DeniedTTL)
	case end.IsZero() || end.After(a.At.Add(AllowedTTL)):
		return a.At.Add(AllowedTTL)
	case end.After(a.At):
		return MonotonicEnd(end, a.At)
	}
	return a.At.Add(DeniedTTL)
}
