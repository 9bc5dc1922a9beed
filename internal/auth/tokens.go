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
	hasher    *hasher
	audiences []string
	reviews   *reviews[secret, proof]
}

// proof is what upstream says of a token.
type proof struct {
	who     *Identity // nil: refused
	why     error     // of a refusal
	expires time.Time
}

func newTokens(r *Reviewer, audiences []string, b bounds, clock clock.PassiveClock) *tokens {
	t := &tokens{hasher: newHasher(), audiences: slices.Clone(audiences), reviews: newReviews[secret, proof](b, clock)}
	t.reviews.ask = func(ctx context.Context, token secret) (proof, error) {
		if !askable(token) {
			return proof{why: errUnaskable}, nil
		}
		status, err := r.token(ctx, token, t.audiences)
		if err != nil {
			return proof{}, err
		}
		return t.read(status, tokenExpiry(token.reveal())), nil
	}
	t.reviews.good = func(p proof) bool { return p.who != nil }
	t.reviews.until = proofUntil
	return t
}

// askable reports that a review asks about exactly this token: it is JSON, and upstream trims the
// token that it reads there, but not in a request that says more after it.
func askable(token secret) bool {
	text := token.reveal()
	return isText(text) && strings.TrimSpace(text) == text
}

// key names a token, and what it was asked to be for.
func (t *tokens) key(token secret) digest {
	return t.hasher.sum(append([]string{"token", token.reveal()}, t.audiences...)...)
}

// read decides what a review says. The review must say that the token is authenticated, name its
// user, and, if audiences were asked about, name those of them that the token is for: an apiserver
// that names none has not looked at them, and vouches for its own alone. A user name that JSON may
// have changed on the way is not used: the request passes through, with its token.
func (t *tokens) read(s authenticationv1.TokenReviewStatus, expires time.Time) proof {
	switch {
	case !s.Authenticated:
		return proof{why: errRefusedToken}
	case s.User.Username == "" || s.User.Username == anonymousUser:
		return proof{why: errNameless}
	case len(t.audiences) > 0 && !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(t.audiences, a) }):
		return proof{why: errAudience}
	}
	who := NewIdentity(s.User)
	if who.replaced() {
		return proof{why: errReplaced}
	}
	return proof{who: who, expires: expires}
}

// proofUntil is how long a proof counts: not beyond the token's own end, at which upstream is asked again. One that upstream takes after
// its end (a minute's grace) is asked about as often as one that it refuses.
func proofUntil(a answer[proof]) time.Time {
	switch end := a.value.expires; {
	case a.err != nil || a.value.who == nil:
		return a.at.Add(DeniedFor)
	case end.IsZero() || end.After(a.at.Add(AllowedFor)):
		return a.at.Add(AllowedFor)
	case end.After(a.at):
		return moment(end, a.at)
	}
	return a.at.Add(DeniedFor)
}
