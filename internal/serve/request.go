package serve

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// call is the protocol's side of a request: it knows how to read the request and how to carry out
// what the server has decided.
type call interface {
	apistatus.Responder
	// PlanRequest copies what a plan needs. A request that is not Plain (a body, an upgrade) passes
	// through.
	PlanRequest() plan.Request
	// GuardedRequest is what PlainGuard checks.
	GuardedRequest() passthrough.PlainRequest
	// Headers are the request's, by their canonical keys, as far as they are wanted.
	Headers(isWanted func(key string) bool) http.Header
	// Certificates are those that the client sent, its own first; they are not verified.
	Certificates() []*x509.Certificate
	// MarkProven notes that the sender of the request is known, or that the listener needs none.
	MarkProven()
	// Address is the client's IP address; none for a unix socket.
	Address() netip.Addr
	// OnDisconnect has gone called if the client departs before stop is called.
	OnDisconnect(gone func()) (stop func())
	// Watch serves an open stream to its end, or hands it to a writer and returns. headers sets those
	// of the answer.
	Watch(st *watch.Stream, headers watch.HeadersFunc)
	// Forward passes the request through, and returns when the answer to a short request has begun or
	// later. A longer one it may leave to another goroutine. The limits count the request for flow. as
	// impersonates its sender; nil: the request goes as it is. o follows the answer.
	Forward(flow flowcontrol.Flow, as *auth.Impersonation, o passthrough.AnswerObserver)
}

// request is one request on its way through the pipeline: what it asks for, its sender, its plan,
// and what is kept of it for the audit log and for its trace. One goroutine at a time owns it, the
// one that answers it.
type request struct {
	call
	server    *Server
	listener  ListenerConfig
	arrivedAt time.Time
	parsed    plan.Request
	id        string // of the answer and its record (W-3); empty until auditID is called
	record    *record
	trace     *trace

	// Known once the sender is identified.
	requester
	flow flowcontrol.Flow // the limits count the request for it
	// canPass: upstream may answer in place of an answer that cannot be put on record. It judges the
	// sender itself, or repeats the denial.
	canPass bool

	// Known once the request is planned.
	plan      plan.Plan
	staleness staleness // what the answer says of the age of its state
}

// newRequest is a request that begins. close ends it.
func (s *Server) newRequest(c call, listener ListenerConfig) *request {
	r := &request{call: c, server: s, listener: listener, arrivedAt: time.Now(), parsed: c.PlanRequest()}
	if s.opts.Tracer != nil {
		r.trace = &trace{tracer: s.opts.Tracer, request: r}
	}
	if s.opts.Audit != nil {
		r.record = &record{trail: s.opts.Audit, request: r}
	}
	return r
}

// close ends the record and the trace. If no answer was given, the handler panicked: that is what
// they say, and the caller of close answers.
func (r *request) close() {
	r.record.close()
	r.trace.close()
}

// auditID is the id that the answer and its record have: the client's own, or a new one.
func (r *request) auditID() string {
	if r.id == "" {
		r.id = apistatus.AuditIDFor(r.RequestHeader(apistatus.AuditIDHeader))
	}
	return r.id
}

// resource is the label of metrics and log lines. Only a request with a plan has one.
func (r *request) resource() string { return r.plan.Source.Resource().Info.String() }

// failureFormat is the form of a refusal in the proxy's own words.
func (r *request) failureFormat() apistatus.StatusFormat {
	if form, ok := r.negotiateFailure(); ok {
		return form
	}
	return apistatus.StatusFormat{Indented: true} // as upstream's fallback, also for a form not made here
}

// negotiateFailure is the form of a refusal that the client accepts. It reports false if that form
// is not made here.
func (r *request) negotiateFailure() (apistatus.StatusFormat, bool) {
	return plan.NegotiateFailure(r.parsed.Accept, plan.WantsPretty(r.parsed.Query().Get("pretty"), r.parsed.UserAgent))
}
