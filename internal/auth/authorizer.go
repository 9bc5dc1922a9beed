package auth

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// Verdict is the answer to the question whether an identity may do something.
type Verdict string

// The verdicts, which are also the labels of metrics.
const (
	Allowed Verdict = "allowed"
	// Denied: the API server would answer with a 403, whose words Forbidden has.
	Denied Verdict = "denied"
	// Unreviewed: there is no review. It was not sent (ErrBusy, ErrNotText) or not answered, or an
	// authorizer failed, for which the API server answers 500. The request is passed through, except
	// after ErrBusy.
	Unreviewed Verdict = "error"
)

// Verdicts are all of them.
var Verdicts = []Verdict{Allowed, Denied, Unreviewed}

// Decision is a verdict, and why.
type Decision struct {
	Verdict Verdict
	// Reason is the authorizer's own, which the API server appends to a 403 (W-174).
	Reason string
	// At is when the question was sent to the API server, or when what decided it was proven.
	At time.Time
	// Err says why, if Unreviewed.
	Err error
}

// AuthorizerOptions configure an Authorizer.
type AuthorizerOptions struct {
	Reviewer *Reviewer
	// MaxAnswers bounds the remembered answers: allowed ones and all others, each. 0: 65536.
	MaxAnswers int
	// MaxReviews bounds the reviews under way for new requests. One user has at most half. 0: 128.
	MaxReviews int
	Local      LocalDecider       // nil: the API server decides everything
	Clock      clock.PassiveClock // nil: the real one
	Metrics    *Metrics           // nil: nothing is registered
}

const (
	defaultAnswersLimit       = 64 << 10
	defaultAccessReviewsLimit = 128
)

// Authorizer finds out whether an identity may do something, by SubjectAccessReview. It remembers
// an answer for AnswerTTL, a failure for FailureTTL. An answer is remembered for the whole
// question, identity and attributes: an authorizer may look at any part of them. What a
// LocalDecider allows needs no review.
type Authorizer struct {
	hasher  *Hasher
	reviews *reviews[ReviewRequest, AccessStatus]
	metrics *Metrics
}

var (
	// ErrNotText is why a review is not sent: it is JSON, and would ask about another user, or another
	// object.
	ErrNotText    = errors.New("the user or the request has bytes that are no UTF-8, of which a review cannot ask")
	errAuthorizer = errors.New("an authorizer of upstream failed")
)

// NewAuthorizer returns an Authorizer. It has no goroutines of its own.
func NewAuthorizer(o AuthorizerOptions) *Authorizer {
	o.Clock = cmp.Or(o.Clock, clock.PassiveClock(clock.RealClock{}))
	o.MaxAnswers, o.MaxReviews = cmp.Or(o.MaxAnswers, defaultAnswersLimit), cmp.Or(o.MaxReviews, defaultAccessReviewsLimit)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	opts := reviewsOptions[ReviewRequest, AccessStatus]{
		bounds: bounds{remembered: o.MaxAnswers, underWay: o.MaxReviews, each: max(1, o.MaxReviews/2)},
		ask: func(ctx context.Context, q ReviewRequest) (AccessStatus, error) {
			if !q.isText() {
				return AccessStatus{}, ErrNotText
			}
			return o.Reviewer.access(ctx, q.spec())
		},
		isGood: func(s AccessStatus) bool { return VerdictOf(s) == Allowed },
		until:  accessUntil,
		user:   func(q ReviewRequest) string { return q.Identity.name },
		clock:  o.Clock, count: o.Metrics.countAnswers(reviewOfAccess),
	}
	if o.Local != nil {
		opts.newLocal = o.Local.Access
	}
	return &Authorizer{hasher: NewHasher(), reviews: newReviews(opts), metrics: o.Metrics}
}

// VerdictOf reads the API server's answer. An answer that both allows and denies is a failure of an
// authorizer. So is one that does not allow and reports an error. The API server answers both with
// 500. An error beside an allowance is no failure.
func VerdictOf(s AccessStatus) Verdict {
	switch {
	case s.Allowed && !s.Denied:
		return Allowed
	case s.Allowed, s.EvaluationError != "":
		return Unreviewed
	}
	return Denied
}

// accessUntil is until when an answer counts.
func accessUntil(a Answer[AccessStatus]) time.Time {
	if a.Err != nil || VerdictOf(a.Value) == Unreviewed {
		return a.At.Add(FailureTTL)
	}
	return a.At.Add(AnswerTTL)
}

// Authorize finds out whether an identity may do something. ctx ends the wait for the API server's
// answer to another request with the same question.
func (a *Authorizer) Authorize(ctx context.Context, who *Identity, what Attributes) Decision {
	d := decisionOf(a.reviews.answer(ctx, a.Key(who, what), ReviewRequest{who, what}))
	a.metrics.verdicts.WithLabelValues(string(d.Verdict)).Inc()
	return d
}

// Renew decides again, now. It ignores remembered answers and takes no turn: callers bound it.
func (a *Authorizer) Renew(ctx context.Context, who *Identity, what Attributes) Decision {
	return decisionOf(a.reviews.renew(ctx, a.Key(who, what), ReviewRequest{who, what}))
}

// Recall is when the API server last reviewed the question of a key, if that is remembered and the
// API server allowed it.
func (a *Authorizer) Recall(key Digest) (time.Time, bool) {
	review, ok := a.reviews.recall(key)
	return review.At, ok && review.Err == nil && VerdictOf(review.Value) == Allowed
}

// Key names a question.
func (a *Authorizer) Key(who *Identity, what Attributes) Digest {
	return what.digest(a.hasher, who.digest(a.hasher))
}

func decisionOf(review Answer[AccessStatus]) Decision {
	d := Decision{Verdict: Unreviewed, Reason: review.Value.Reason, At: review.At, Err: review.Err}
	if review.Err != nil {
		return d
	}
	if d.Verdict = VerdictOf(review.Value); d.Verdict == Unreviewed {
		d.Err = errAuthorizer
	}
	return d
}
