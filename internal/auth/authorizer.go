package auth

import (
	"context"
	"errors"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
)

// Verdict is what became of the question whether somebody may do something.
type Verdict string

// The verdicts, which are also the labels of metrics.
const (
	Allowed Verdict = "allowed"
	// Denied: upstream would answer with a 403, whose words Forbidden has.
	Denied Verdict = "denied"
	// Unasked: upstream did not say, or an authorizer of its own failed, in which case it would answer 500 with that one's words. Nothing
	// is served; who can be passed through hears it from upstream.
	Unasked Verdict = "unasked"
)

// verdicts are all of them.
var verdicts = []Verdict{Allowed, Denied, Unasked}

// Decision is a verdict, and why.
type Decision struct {
	Verdict Verdict
	// Reason is the authorizer's own, which upstream appends to a 403 (W-174).
	Reason string
	// At is when upstream was asked, or when what it was decided by was proven.
	At time.Time
	// Err says why, if Unasked.
	Err error
}

// AuthorizerOptions configure an Authorizer.
type AuthorizerOptions struct {
	Reviewer *Reviewer
	// MaxAnswers bounds the answers that are remembered, of each verdict, and MaxReviews the
	// reviews for new requests that are under way, of which one user has half at most. 0: 65536 and
	// 128.
	MaxAnswers, MaxReviews int
	Rights                 *Rights            // decide what they can, if they were told to; nil: upstream decides everything
	Clock                  clock.PassiveClock // nil: the real one
	Metrics                *Metrics           // nil: nothing is registered
}

// Authorizer finds out whether somebody may do something, by SubjectAccessReview, and remembers what upstream said for AllowedFor. What is
// remembered is the whole question, identity and attributes: an authorizer may look at any part of them. What Rights allow needs neither.
type Authorizer struct {
	hasher  *hasher
	reviews *reviews[question, authorizationv1.SubjectAccessReviewStatus]
	metrics *Metrics
}

// question is whether somebody may do something.
type question struct {
	who  *Identity
	what Attributes
}

// ErrNotText is why upstream is not asked a question: a review is JSON, and would ask it about
// another user, or another object.
var ErrNotText = errors.New("the user or the request has bytes that are no UTF-8, of which a review cannot ask")

// isText reports that a review asks exactly this question.
func (q question) isText() bool {
	a := q.what
	return q.who.isText() &&
		isText(a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.FieldSelector,
			a.LabelSelector)
}

const (
	defaultAnswers       = 64 << 10
	defaultAccessReviews = 128
)

// NewAuthorizer returns an Authorizer. It has no goroutines of its own.
func NewAuthorizer(o AuthorizerOptions) *Authorizer {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	b := bounds{remembered: orDefault(o.MaxAnswers, defaultAnswers), underWay: orDefault(o.MaxReviews, defaultAccessReviews)}
	b.each = max(1, b.underWay/2)
	a := &Authorizer{hasher: newHasher(), metrics: o.Metrics}
	a.reviews = newReviews[question, authorizationv1.SubjectAccessReviewStatus](b, o.Clock)
	a.reviews.user = func(q question) string { return q.who.name }
	a.reviews.ask = func(ctx context.Context, q question) (authorizationv1.SubjectAccessReviewStatus, error) {
		if !q.isText() {
			return authorizationv1.SubjectAccessReviewStatus{}, ErrNotText
		}
		return o.Reviewer.access(ctx, q.spec())
	}
	a.reviews.good = func(s authorizationv1.SubjectAccessReviewStatus) bool { return verdict(s) == Allowed }
	a.reviews.until = func(said answer[authorizationv1.SubjectAccessReviewStatus]) time.Time {
		if said.err != nil || verdict(said.value) == Unasked {
			return said.at.Add(DeniedFor)
		}
		return said.at.Add(AllowedFor)
	}
	a.reviews.count = o.Metrics.answers(reviewOfAccess)
	if o.Rights != nil && o.Rights.opts.RBAC {
		a.reviews.local = newLocal(reviewOfAccess, o.Rights, a.reviews, o.Rights.access, func(_, there authorizationv1.SubjectAccessReviewStatus) bool {
			return verdict(there) != Denied
		})
		a.reviews.local.waits = o.Rights.waits
	}
	return a
}

// verdict reads upstream's answer. One that both allows and denies, and one that does not allow and tells of an error, are failures of an
// authorizer, which upstream answers 500 for; an error beside an allowance is not.
func verdict(s authorizationv1.SubjectAccessReviewStatus) Verdict {
	switch {
	case s.Allowed && !s.Denied:
		return Allowed
	case s.Allowed, s.EvaluationError != "":
		return Unasked
	}
	return Denied
}

// Authorize finds out whether somebody may do something. ctx ends the wait for upstream's answer to somebody else with the same question.
func (a *Authorizer) Authorize(ctx context.Context, who *Identity, what Attributes) Decision {
	d := decide(a.reviews.answer(ctx, a.key(who, what), question{who, what}))
	a.metrics.verdicts.WithLabelValues(string(d.Verdict)).Inc()
	return d
}

// renew asks again, now.
func (a *Authorizer) renew(ctx context.Context, who *Identity, what Attributes) Decision {
	return decide(a.reviews.renew(ctx, a.key(who, what), question{who, what}))
}

// recall is when upstream was last asked the question of a key, if that is remembered and it allowed it.
func (a *Authorizer) recall(key digest) (time.Time, bool) {
	said, ok := a.reviews.recall(key)
	return said.at, ok && said.err == nil && verdict(said.value) == Allowed
}

// key names a question.
func (a *Authorizer) key(who *Identity, what Attributes) digest {
	return what.digest(a.hasher, who.digest(a.hasher))
}

var errAuthorizer = errors.New("an authorizer of upstream failed")

func decide(said answer[authorizationv1.SubjectAccessReviewStatus]) Decision {
	d := Decision{Verdict: Unasked, Reason: said.value.Reason, At: said.at, Err: said.err}
	if said.err != nil {
		return d
	}
	if d.Verdict = verdict(said.value); d.Verdict == Unasked {
		d.Err = errAuthorizer
	}
	return d
}
