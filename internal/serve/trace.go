package serve

import (
	"io"
	"net/http"
	"strings"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/tracing"
	"spillway/internal/watch"
)

// The source of an answer, as its span names it.
const (
	tracedMemory   = "memory"
	tracedRefused  = "refused"  // an error that was worded here
	tracedShared   = "shared"   // by a request upstream that was made for several
	tracedUpstream = "upstream" // passed through
)

// tracedCall is a call of whose answer a span tells.
type tracedCall struct {
	call
	trace *trace
}

// trace is the span of a request until its answer begins: what a client does not take is not the
// request's time, and a watch may last for hours. The nil pointer is that of a request that is not
// traced.
//
// Invariant: one goroutine owns it at a time, the one that answers the request.
type trace struct {
	tracer  *tracing.Tracer
	came    time.Time
	span    *tracing.Span // nil: not sampled, or not begun
	begun   bool
	passed  bool // upstream answers
	source  string
	auditID string
}

// tracing begins to trace a request, if any are.
func (s *Server) tracing() *trace {
	if s.opts.Tracer == nil {
		return nil
	}
	return &trace{tracer: s.opts.Tracer, came: time.Now()}
}

// of notes the sender of the request, as far as it is known. From here on the span has an id.
func (t *trace) of(c call, who *auth.Identity) {
	if t == nil || t.begun {
		return
	}
	t.begun = true
	var parent http.Header
	if c.RequestHeader("Traceparent") != "" {
		parent = c.Headers(tracing.ReadsHeader)
	}
	if t.span = t.tracer.Start(t.came, parent, trustedParent(who)); t.span == nil {
		return
	}
	asked := c.PlanRequest()
	what, ok := auth.AttributesOf(asked.Method, asked.Path, asked.RawQuery)
	if !ok {
		what = auth.Attributes{Verb: strings.ToLower(asked.Method)}
	}
	t.span.Asks(asked.Method, what)
}

// trustedParent reports that the trace which a request names is trusted: kube-apiserver trusts that
// of the same users.
func trustedParent(who *auth.Identity) bool {
	return who != nil && (who.MemberOf("system:masters") || who.MemberOf("system:monitoring"))
}

// id is that of the trace, "" if the request is not sampled.
func (t *trace) id() string {
	if t == nil {
		return ""
	}
	return t.span.TraceID()
}

// ObserveShared implements passthrough.ShareObserver: several clients get one answer of upstream.
func (c tracedCall) ObserveShared(passthrough.SharedAnswer) { c.trace.source = tracedShared }

// Propagate sets the headers of a request upstream that name its span. A client whose request is
// not sampled has set them itself.
func (t *trace) Propagate(header http.Header) { t.span.Propagate(header) }

// answered ends the span of what is answered here.
func (t *trace) answered(code int, bytes int64) {
	source := t.source
	switch {
	case source != "":
	case code >= http.StatusBadRequest:
		source = tracedRefused
	default:
		source = tracedMemory
	}
	t.span.End(tracing.SpanResult{Code: code, Source: source, Bytes: bytes, AuditID: t.auditID})
}

// AnsweredUpstream ends the span of what upstream answers.
func (t *trace) AnsweredUpstream(code int) {
	t.span.End(tracing.SpanResult{Code: code, Source: tracedUpstream, Bytes: -1})
}

// over ends the span of a request that has no answer: it ran into a bug, and the caller answers it.
func (t *trace) over() {
	if !t.passed {
		t.answered(http.StatusInternalServerError, -1)
	}
}

// Noting is w, whose answer ends the span.
func (t *trace) Noting(w apistatus.Responder) apistatus.Responder { return tracedResponder{w, t} }

// tracedResponder is a responder whose answer ends a span.
type tracedResponder struct {
	apistatus.Responder
	trace *trace
}

func (n tracedResponder) Send(code int, body []byte) {
	n.trace.answered(code, int64(len(body)))
	n.Responder.Send(code, body)
}

func (n tracedResponder) Stream(code int, body io.WriterTo, size int64) {
	n.trace.answered(code, size)
	n.Responder.Stream(code, body, size)
}

func (c tracedCall) SetHeader(key, value string) {
	if key == apistatus.AuditIDHeader {
		c.trace.auditID = value
	}
	c.call.SetHeader(key, value)
}

func (c tracedCall) Send(code int, body []byte) {
	c.trace.of(c, nil)
	tracedResponder{c.call, c.trace}.Send(code, body)
}

func (c tracedCall) Stream(code int, body io.WriterTo, size int64) {
	c.trace.of(c, nil)
	tracedResponder{c.call, c.trace}.Stream(code, body, size)
}

func (c tracedCall) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	if id := st.RecordID(); id != "" {
		c.trace.auditID = id
	}
	c.trace.answered(st.Code(), -1)
	c.call.Watch(st, headers)
}

func (c tracedCall) Forward(flow flowcontrol.Flow, as *auth.Impersonation, h passthrough.AnswerHooks) {
	c.trace.passed, h.Trace = true, c.trace
	c.call.Forward(flow, as, h)
}
