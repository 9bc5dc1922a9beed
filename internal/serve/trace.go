package serve

import (
	"net/http"
	"strings"

	"spillway/internal/auth"
	"spillway/internal/tracing"
	"spillway/internal/watch"
)

// The source of an answer, as its span names it.
const (
	tracedMemory   = "memory"
	tracedRefused  = "refused"  // an error from here
	tracedShared   = "shared"   // by a request upstream that was made for several
	tracedUpstream = "upstream" // passed through
)

// trace is the span of a request until its answer begins. It leaves out how long the client takes
// to receive that, and a watch may last for hours. A nil trace makes no span.
type trace struct {
	tracer  *tracing.Tracer
	request *request
	span    *tracing.Span // nil: not sampled, or not begun
	isBegun bool
	passes  bool // upstream answers
}

// begin begins the span, once the sender of the request is known, or will not be. Then it has an
// id.
func (t *trace) begin() {
	if t == nil || t.isBegun {
		return
	}
	t.isBegun = true
	r := t.request
	var parent http.Header
	if r.RequestHeader("Traceparent") != "" {
		parent = r.Headers(tracing.ReadsHeader)
	}
	if t.span = t.tracer.Start(r.arrivedAt, parent, isTrustedParent(r.identity)); t.span == nil {
		return
	}
	what, ok := auth.AttributesOf(r.parsed.Method, r.parsed.Path, r.parsed.RawQuery)
	if !ok {
		what = auth.Attributes{Verb: strings.ToLower(r.parsed.Method)}
	}
	t.span.Describe(r.parsed.Method, what)
}

// isTrustedParent reports that the trace which a user's request names is trusted: kube-apiserver
// trusts the same users.
func isTrustedParent(who *auth.Identity) bool {
	return who != nil && (who.MemberOf("system:masters") || who.MemberOf("system:monitoring"))
}

// id is that of the trace, "" if the request is not sampled.
func (t *trace) id() string {
	if t == nil {
		return ""
	}
	return t.span.TraceID()
}

// propagate sets the headers of a request upstream that name its span. A client whose request is
// not sampled has set them itself.
func (t *trace) propagate(header http.Header) {
	if t != nil {
		t.passes = true
		t.span.Propagate(header)
	}
}

// endWithAnswer ends the span of what is answered here.
func (t *trace) endWithAnswer(a *answer) {
	if t == nil {
		return
	}
	source := tracedMemory
	switch {
	case a.shared:
		source = tracedShared
	case a.Code >= http.StatusBadRequest:
		source = tracedRefused
	}
	t.end(tracing.SpanResult{Code: a.Code, Source: source, Bytes: a.Length()})
}

// endWithWatch ends the span of a watch that is answered here.
func (t *trace) endWithWatch(st *watch.Stream) {
	if t != nil {
		t.end(tracing.SpanResult{Code: st.Code(), Source: tracedMemory, Bytes: -1})
	}
}

// end ends the span of an answer from here.
func (t *trace) end(result tracing.SpanResult) {
	t.begin()
	result.AuditID = t.request.auditID()
	t.span.End(result)
}

// endWithUpstream ends the span of what upstream answers.
func (t *trace) endWithUpstream(code int) {
	if t != nil {
		t.span.End(tracing.SpanResult{Code: code, Source: tracedUpstream, Bytes: -1})
	}
}

// close ends the span of a request, unless it has ended or upstream answers: the handler panicked.
func (t *trace) close() {
	if t != nil && !t.passes {
		t.span.End(tracing.SpanResult{Code: http.StatusInternalServerError, Source: tracedRefused, Bytes: -1})
	}
}
