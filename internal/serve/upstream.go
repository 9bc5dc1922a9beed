package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/passthrough"
)

// passage is the way of a request to upstream, and follows the answer (passthrough.AnswerObserver).
type passage struct {
	request     *request
	as          *auth.Impersonation          // nil: the request goes as it is
	onAnswer    func()                       // of a LIST that others wait for; nil: none does
	observeTime func(upstream time.Duration) // gets how long upstream took for a LIST; nil: it is not needed
	hasBegun    bool                         // AnswerBegan was called
}

// passThrough is the outcome of a request that upstream answers, if upstream takes it for the same
// sender's.
func (r *request) passThrough() outcome {
	p := &passage{request: r}
	if r.hasCertificate {
		var err error
		if p.as, err = r.server.opts.Forwarder.Lend(r.identity); err != nil {
			return answerOutcome(apistatus.Failure(r.refusePassage(err)))
		}
	}
	return outcome{passage: p}
}

// refusePassage is the answer to a request that is not passed through, because upstream would take
// it for another identity's. err is why there is no impersonation.
func (r *request) refusePassage(err error) *metav1.Status {
	var unencodable *auth.UnencodableIdentityError
	switch {
	case r.access == verdictUnanswered:
		return apistatus.Unavailable("upstream did not answer whether this is allowed")
	case errors.As(err, &unencodable):
		return apistatus.Forbidden(
			"this request is not answered from memory, and its identity cannot be sent to the API server in a header: " +
				unencodable.Error() + ": use a bearer token, the API server itself, or another name")
	}
	return apistatus.Forbidden(
		"this request is not answered from memory, and the client certificate that it came with cannot be shown " +
			"to the API server: use a bearer token for it, or the API server itself")
}

// secrets are never shared, not even among users that may read all of them.
var secrets = schema.GroupResource{Resource: "secrets"}

// passThroughPlanned is the outcome of a request that has a plan, and that upstream answers. While
// nothing can be proven, only some watches of the most recent state pass through. Equal LISTs of
// the most recent state share one answer, and the time that it took shows how long a proof may
// take.
func (r *request) passThroughPlanned() outcome {
	s := r.server
	if r.plan.Doubtful && !s.unprovenWatches.Allow() {
		s.metrics.unproven.WithLabelValues(r.resource()).Inc()
		return refuseBusy()
	}
	landed := func() {}
	if r.plan.MostRecent() && r.plan.Source.Resource().Info.GVR.GroupResource() != secrets {
		var shared *passthrough.SharedAnswer
		shared, landed = s.coalescer.Share(passthrough.LaneKeyOf(r.parsed, r.RequestHeader("Accept-Encoding")),
			r.parsed.UserAgent)
		if shared != nil {
			s.metrics.shared.WithLabelValues(r.resource()).Inc()
			return outcome{answer: newSharedAnswer(shared)}
		}
	}
	o := r.passThrough()
	if o.passage == nil {
		landed()
		return o
	}
	o.passage.onAnswer = landed
	if r.plan.MostRecent() {
		fresh, n := r.plan.Source.Fresh, listSize(r.plan)
		o.passage.observeTime = func(took time.Duration) { fresh.ObserveUpstreamList(n, took) }
	}
	return o
}

// forward passes the request through.
func (p *passage) forward() {
	defer p.AnswerBegan() // nothing else calls it for a request that passes through directly
	p.request.Forward(p.request.flow, p.as, p)
}

// Propagate implements passthrough.AnswerObserver, as do the methods below.
func (p *passage) Propagate(header http.Header) { p.request.trace.propagate(header) }

// AnswerBegan is also called if no answer comes. Calls after the first do nothing.
func (p *passage) AnswerBegan() {
	if p.hasBegun {
		return
	}
	p.hasBegun = true
	if p.request.plan.List != nil {
		p.request.observeList(listFromUpstream)
	}
	if p.onAnswer != nil {
		p.onAnswer()
	}
}

func (p *passage) AnswerTook(took time.Duration) {
	if p.observeTime != nil {
		p.observeTime(took)
	}
}

func (p *passage) Answered(code int) { p.request.trace.endWithUpstream(code) }

func (p *passage) Refused(a *apistatus.Answer) { p.request.trace.endWithAnswer(&answer{Answer: a}) }

// newSharedAnswer is the answer to one of the requests that share an answer of upstream's. The
// audit log gets it like an answer from here, if it is plain JSON.
func newSharedAnswer(shared *passthrough.SharedAnswer) *answer {
	a := &answer{Answer: shared.NewAnswer(), shared: true, listSource: listFromSharedAnswer}
	isReadable := strings.HasPrefix(shared.Header.Get("Content-Type"), "application/json") &&
		shared.Header.Get("Content-Encoding") == ""
	if status := (metav1.Status{}); isReadable && a.Code >= http.StatusBadRequest &&
		json.Unmarshal(shared.Body, &status) == nil && status.Kind == "Status" {
		a.Status = &status
	}
	a.document = func() []byte {
		if !isReadable || len(shared.Body) > audit.MaxObject {
			return nil
		}
		return shared.Body
	}
	return a
}
