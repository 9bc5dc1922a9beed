package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// recorded is a call whose answer is put on record before it is given. What passes through is
// upstream's to record: its audit log has it under the client's own name, and so no request is in
// both.
type recorded struct {
	call
	record *record
}

// record is what is known of a request until it is answered, in one place for all answers that are
// made here. The nil pointer is that of a request of which no record is kept.
//
// Invariant: whatever answers a request here comes by answers or starts, once, before it is sent.
type record struct {
	server   *Server
	call     call
	received time.Time
	id       string
	visitor  requester
	passable bool // the request may pass through instead: upstream says the same, or has the last word

	headers   [][2]string // of the answer, kept until the source of the answer is certain
	status    *metav1.Status
	object    []byte // the answer, if the policy wants it
	truncated bool
	entry     *audit.RequestRecord // nil: the policy wants none, or was not evaluated yet
	begun     bool                 // the policy was evaluated
	settled   bool                 // it is on record, or not ours to record
}

// recording begins the record of a request.
func (s *Server) recording(c call) *record {
	id := apistatus.AuditIDFor(c.RequestHeader(apistatus.AuditIDHeader))
	return &record{server: s, call: c, received: time.Now(), id: id}
}

// recordOf is the record of the request that w answers; nil: none is kept.
func recordOf(w apistatus.Responder) *record {
	if c, ok := w.(recorded); ok {
		return c.record
	}
	return nil
}

// of notes the sender of a request, and whether the request is refused on account of it.
func (r *record) of(v requester, refused bool) {
	if r != nil {
		r.visitor, r.passable = v, !refused || v.denied
	}
}

// ObserveFailure implements apistatus.FailureObserver.
func (c recorded) ObserveFailure(s *metav1.Status) { c.record.ObserveFailure(s) }

// ObserveFailure says in what words the answer fails.
func (r *record) ObserveFailure(s *metav1.Status) {
	if r == nil {
		return
	}
	if r.status = s; r.whole() {
		r.object = apistatus.Body(s)
	}
}

// whole reports that the answer itself is to be kept.
func (r *record) whole() bool { return r != nil && r.begin().Whole() }

// keep keeps the answer as JSON; nil: it is too large, or was not made here.
func (r *record) keep(document []byte) { r.object, r.truncated = document, document == nil }

// begin evaluates the policy, once the sender of the request is known.
func (r *record) begin() *audit.RequestRecord {
	if !r.begun {
		r.begun, r.entry = true, r.server.opts.Audit.Entry(r.request())
	}
	return r.entry
}

// request is what is put on record of the request itself.
func (r *record) request() audit.RequestInfo {
	asked := r.call.PlanRequest()
	q := audit.RequestInfo{
		ID: r.id, Received: r.received, URI: uriOf(asked), Who: r.visitor.who,
		Header: r.call.Headers(audit.ReadsHeader),
	}
	if address := r.call.Address(); address.IsValid() {
		q.Remote = address.Unmap().String()
	}
	var ok bool
	if q.What, ok = auth.AttributesOf(asked.Method, asked.Path, asked.RawQuery); !ok {
		q.What = auth.Attributes{Verb: strings.ToLower(asked.Method), Path: asked.Path}
	}
	switch v := r.visitor; {
	case v.self != nil:
		q.Who = v.self
	case v.denied:
		q.Decision, q.Reason = "forbid", v.reason
	case v.grant != nil:
		q.Decision, q.Reason = "allow", v.grant.decision.Reason
	}
	return q
}

// uriOf is the target of a request as upstream's parser writes it.
func uriOf(r plan.Request) string {
	target := r.Path
	if r.RawQuery != "" {
		target += "?" + r.RawQuery
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return target
	}
	return u.RequestURI()
}

// answers reports that an answer may be given: its events are on record, or need not be. Otherwise
// upstream is to give it (passOn).
func (r *record) answers(code int) bool {
	r.settled = true
	entry := r.begin()
	if entry == nil {
		return true
	}
	put := entry.Answered
	if code == http.StatusUnauthorized {
		put = entry.Refused
	}
	return put(audit.ResponseInfo{Code: code, Status: r.status, Object: r.object, Truncated: r.truncated}) == nil ||
		!r.required(code)
}

// starts is answers for a watch.
func (r *record) starts(code int) bool {
	r.settled = true
	entry := r.begin()
	return entry == nil || entry.Started(code) == nil || !r.required(code)
}

// required reports that an answer must not be given which could not be put on record. A refusal to
// be retried later tells nothing of what is in memory, and passing it through would be one request
// too many upstream.
func (r *record) required(code int) bool {
	later := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
	return r.server.opts.Audit.FailClosed() && r.passable && !later
}

// passOn has upstream answer, which may last. Nothing is held any more for an answer from here.
func (r *record) passOn() {
	r.server.opts.Audit.Passed()
	r.server.pass(r.call, r.visitor, passthrough.AnswerHooks{})
}

// over puts a request on record that has no answer: it ran into a bug, and the caller answers it.
func (r *record) over() {
	if r.settled {
		return
	}
	if entry := r.begin(); entry != nil {
		_ = entry.Panicked() // that it failed is counted and logged, and the answer tells nothing
	}
}

// RequestHeader implements responder: the answer and its record have one id.
func (c recorded) RequestHeader(key string) string {
	if key == apistatus.AuditIDHeader {
		return c.record.id
	}
	return c.call.RequestHeader(key)
}

func (c recorded) SetHeader(key, value string) {
	c.record.headers = append(c.record.headers, [2]string{key, value})
}

func (c recorded) Send(code int, body []byte) {
	if !c.record.answers(code) {
		c.record.passOn()
		return
	}
	c.begin()
	c.call.Send(code, body)
}

func (c recorded) Stream(code int, body io.WriterTo, size int64) {
	if !c.record.answers(code) {
		_ = apistatus.CloseBody(body) // it gives back what it holds
		c.record.passOn()
		return
	}
	c.begin()
	c.call.Stream(code, body, size)
}

func (c recorded) Forward(flow flowcontrol.Flow, as *auth.Impersonation, h passthrough.AnswerHooks) {
	c.record.settled = true // upstream's to record
	c.call.Forward(flow, as, h)
}

// begin sets the headers that were kept.
func (c recorded) begin() {
	for _, h := range c.record.headers {
		c.call.SetHeader(h[0], h[1])
	}
}

func (c recorded) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	if !c.record.starts(st.Code()) {
		c.record.server.watches.Dismiss(st)
		c.record.passOn()
		return
	}
	st.KeepRecord(c.record.ended())
	c.call.Watch(st, headers)
}

// ended is what a watch keeps of its record.
func (r *record) ended() *watch.Record { return &watch.Record{ID: r.id, Ended: r.entry.Ended} }

// jsonOf is a list as JSON in the view that the client gets; nil if it is too large to be kept, or
// cannot be made.
func jsonOf(p plan.Plan, snapshot *cache.Snapshot) []byte {
	items, meta := collect(p, snapshot)
	form := p.Encoding
	form.Format = object.JSON
	list, err := codec.NewList(form, p.Source.Resource().Info, items, meta)
	if err != nil || list.Size() > audit.MaxObject {
		return nil
	}
	var document bytes.Buffer
	document.Grow(list.Size())
	if _, err := list.WriteTo(&document); err != nil {
		return nil
	}
	return document.Bytes()
}

// jsonOfObject is jsonOf for a GET.
func jsonOfObject(p plan.Plan, o *object.Object) []byte {
	form := p.Encoding
	form.Format = object.JSON
	document, err := codec.Append(nil, form, o, o.RV)
	if err != nil {
		return nil
	}
	return document
}

// ObserveShared implements passthrough.ShareObserver.
func (c recorded) ObserveShared(a passthrough.SharedAnswer) {
	c.record.keepShared(a)
	if o, ok := c.call.(passthrough.ShareObserver); ok {
		o.ObserveShared(a)
	}
}

// keepShared is keep for an answer of upstream's that several share.
func (r *record) keepShared(a passthrough.SharedAnswer) {
	readable := strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") &&
		a.Header.Get("Content-Encoding") == ""
	if status := (metav1.Status{}); readable && a.Code >= http.StatusBadRequest &&
		json.Unmarshal(a.Body, &status) == nil && status.Kind == "Status" {
		r.ObserveFailure(&status)
		return
	}
	if !r.whole() {
		return
	}
	if !readable || len(a.Body) > audit.MaxObject {
		r.keep(nil)
		return
	}
	r.keep(a.Body)
}
