package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// Verdict is the answer to the question whether an identity may do something.
type Verdict string

// The verdicts, which are also the labels of metrics.
const (
	Allowed Verdict = "allowed"
	// Denied: upstream would answer with a 403, whose words Forbidden has.
	Denied Verdict = "denied"
	// Unreviewed: upstream did not say, or an authorizer of its own failed, in which case it would
	// answer 500 with that one's words. Nothing is served; a request that can be passed through
	// gets upstream's answer.
	Unreviewed Verdict = "error"
)

// Verdicts are all of them.
var Verdicts = []Verdict{Allowed, Denied, Unreviewed}

// Decision is a verdict, and why.
type Decision struct {
	Verdict Verdict
	// Reason is the authorizer's own, which upstream appends to a 403 (W-174).
	Reason string
	// At is when the question was sent to upstream, or when what decided it was proven.
	At time.Time
	// Err says why, if Unreviewed.
	Err error
}

// AuthorizerOptions configure an Authorizer.
type AuthorizerOptions struct {
	Reviewer *Reviewer
	// MaxAnswers bounds the answers that are remembered, of each verdict, and MaxReviews the
	// reviews for new requests that are under way, of which one user has half at most. 0: 65536 and
	// 128.
	MaxAnswers, MaxReviews int
	Local                  LocalDecider       // nil: upstream decides everything
	Clock                  clock.PassiveClock // nil: the real one
	Metrics                *Metrics           // nil: nothing is registered
}

// Authorizer finds out whether an identity may do something, by SubjectAccessReview, and remembers
// what upstream said for AllowedTTL. What is remembered is the whole question, identity and
// attributes: an authorizer may look at any part of them. What a LocalDecider allows needs no
// review.
type Authorizer struct {
	hasher  *Hasher
	reviews *reviews[ReviewRequest, AccessStatus]
	metrics *Metrics
}

// ErrNotText is why upstream is not asked a question: a review is JSON, and would ask it about
// another user, or another object.
var ErrNotText = errors.New("the user or the request has bytes that are no UTF-8, of which a review cannot ask")

// isText reports that a review asks exactly this question.
func (q ReviewRequest) isText() bool {
	a := q.Attributes
	return q.Identity.isText() &&
		isText(a.Verb, a.Path, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.FieldSelector,
			a.LabelSelector)
}

const (
	defaultAnswers       = 64 << 10
	defaultAccessReviews = 128
)

// NewAuthorizer returns an Authorizer. It has no goroutines of its own.
func NewAuthorizer(o AuthorizerOptions) *Authorizer {
	o.Clock = cmp.Or(o.Clock, clock.PassiveClock(clock.RealClock{}))
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	b := bounds{remembered: cmp.Or(o.MaxAnswers, defaultAnswers),
		underWay: cmp.Or(o.MaxReviews, defaultAccessReviews)}
	b.each = max(1, b.underWay/2)
	a := &Authorizer{hasher: NewHasher(), metrics: o.Metrics}
	a.reviews = newReviews[ReviewRequest, AccessStatus](b, o.Clock)
	a.reviews.user = func(q ReviewRequest) string { return q.Identity.name }
	a.reviews.ask = func(ctx context.Context, q ReviewRequest) (AccessStatus, error) {
		if !q.isText() {
			return AccessStatus{}, ErrNotText
		}
		return o.Reviewer.access(ctx, q.spec())
	}
	a.reviews.good = func(s AccessStatus) bool { return VerdictOf(s) == Allowed }
	a.reviews.until = func(said Answer[AccessStatus]) time.Time {
		if said.Err != nil || VerdictOf(said.Value) == Unreviewed {
			return said.At.Add(DeniedTTL)
		}
		return said.At.Add(AllowedTTL)
	}
	a.reviews.count = o.Metrics.answers(reviewOfAccess)
	if o.Local != nil {
		a.reviews.local = o.Local.Access(a.reviews.review)
	}
	return a
}

// VerdictOf reads upstream's answer. An answer that both allows and denies, and one that does not
// allow and tells of an error, are failures of an authorizer, for which upstream answers 500; an
// error beside an allowance is not.
func VerdictOf(s AccessStatus) Verdict {
	switch {
	case s.Allowed && !s.Denied:
		return Allowed
	case s.Allowed, s.EvaluationError != "":
		return Unreviewed
	}
	return Denied
}

// Authorize finds out whether an identity may do something. ctx ends the wait for upstream's answer
// to another request with the same question.
func (a *Authorizer) Authorize(ctx context.Context, who *Identity, what Attributes) Decision {
	d := decide(a.reviews.answer(ctx, a.Key(who, what), ReviewRequest{who, what}))
	a.metrics.verdicts.WithLabelValues(string(d.Verdict)).Inc()
	return d
}

// Renew asks again, now.
func (a *Authorizer) Renew(ctx context.Context, who *Identity, what Attributes) Decision {
	return decide(a.reviews.renew(ctx, a.Key(who, what), ReviewRequest{who, what}))
}

// Recall is when upstream was last asked the question of a key, if that is remembered and upstream
// allowed it.
func (a *Authorizer) Recall(key Digest) (time.Time, bool) {
	said, ok := a.reviews.recall(key)
	return said.At, ok && said.Err == nil && VerdictOf(said.Value) == Allowed
}

// Key names a question.
func (a *Authorizer) Key(who *Identity, what Attributes) Digest {
	return what.digest(a.hasher, who.digest(a.hasher))
}

var errAuthorizer = errors.New("an authorizer of upstream failed")

func decide(said Answer[AccessStatus]) Decision {
	d := Decision{Verdict: Unreviewed, Reason: said.Value.Reason, At: said.At, Err: said.Err}
	if said.Err != nil {
		return d
	}
	if d.Verdict = VerdictOf(said.Value); d.Verdict == Unreviewed {
		d.Err = errAuthorizer
	}
	return d
}

// sanitizer keeps what a client wrote from being read as HTML. Quotes stay.
var sanitizer = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Forbidden is upstream's 403 to an identity that may not do something (W-174). reason is the
// authorizer's, or empty; it alone is not the client's word and stays as it is.
func Forbidden(who *Identity, what Attributes, reason string) *metav1.Status {
	message := sanitizer.Replace(forbiddenMessage(who.name, what))
	if reason != "" {
		message += ": " + reason
	}
	s := apierrors.NewForbidden(schema.GroupResource{Group: what.Group, Resource: what.Resource}, what.Name,
		errors.New(message)).Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}

func forbiddenMessage(user string, a Attributes) string {
	if a.Path != "" {
		return fmt.Sprintf("User %q cannot %s path %q", user, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	message := fmt.Sprintf("User %q cannot %s resource %q in API group %q", user, a.Verb, resource, a.Group)
	if a.Namespace == "" {
		return message + " at the cluster scope"
	}
	return message + fmt.Sprintf(" in the namespace %q", a.Namespace)
}
