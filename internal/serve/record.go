package serve

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/cache"
	"spillway/internal/codec"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// record puts the answer to a request on record, before it is given. What passes through is
// upstream's to record: its audit log has it under the client's own name, and so no request is in
// both. The nil pointer is that of a request of which no record is kept.
//
// Invariant: whatever answers a request here is put on record once, before it is sent.
type record struct {
	trail   *audit.Logger
	request *request
	entry   *audit.RequestRecord // nil: the policy wants none, or was not evaluated yet
	begun   bool                 // the policy was evaluated
	settled bool                 // it is on record, or not ours to record
}

// putOutcome puts an answer, or the start of a watch, on record. It reports false if that failed
// and the request must not be answered here without.
func (r *record) putOutcome(o outcome) bool {
	if r == nil || r.settled {
		return true
	}
	r.settled = true
	entry := r.begin()
	switch {
	case entry == nil:
		return true
	case o.stream != nil:
		o.stream.RecordEnd(entry.Ended)
		return entry.Started(o.stream.Code()) == nil || !r.isRequired(o.stream.Code())
	}
	put := entry.Answered
	if o.answer.Code == http.StatusUnauthorized {
		put = entry.Refused
	}
	return put(r.response(o.answer, entry.Whole())) == nil || !r.isRequired(o.answer.Code)
}

// leaveToUpstream leaves the record of the request to upstream, which answers it.
func (r *record) leaveToUpstream() {
	if r != nil {
		r.settled = true
	}
}

// close puts a request on record that has no answer: it ran into a bug, and the caller answers it.
func (r *record) close() {
	if r == nil || r.settled {
		return
	}
	if entry := r.begin(); entry != nil {
		_ = entry.Panicked() // that it failed is counted and logged, and the answer tells nothing
	}
}

// begin evaluates the policy, once the sender of the request is known.
func (r *record) begin() *audit.RequestRecord {
	if !r.begun {
		r.begun, r.entry = true, r.trail.Entry(r.info())
	}
	return r.entry
}

// info is what is put on record of the request itself.
func (r *record) info() audit.RequestInfo {
	from := r.request
	info := audit.RequestInfo{
		ID: from.auditID(), Received: from.arrivedAt, URI: uriOf(from.parsed), Who: from.identity,
		Header: from.Headers(audit.ReadsHeader),
	}
	if address := from.Address(); address.IsValid() {
		info.Remote = address.Unmap().String()
	}
	var ok bool
	if info.What, ok = auth.AttributesOf(from.parsed.Method, from.parsed.Path, from.parsed.RawQuery); !ok {
		info.What = auth.Attributes{Verb: strings.ToLower(from.parsed.Method), Path: from.parsed.Path}
	}
	switch {
	case from.self != nil:
		info.Who = from.self
	case from.access == verdictDenied:
		info.Decision, info.Reason = "forbid", from.reason
	case from.grant != nil:
		info.Decision, info.Reason = "allow", from.grant.decision.Reason
	}
	return info
}

// response is what is put on record of an answer. whole: the answer itself is to be kept.
func (r *record) response(a *answer, whole bool) audit.ResponseInfo {
	info := audit.ResponseInfo{Code: a.Code, Status: a.Status}
	switch {
	case !whole:
	case a.Status != nil:
		info.Object = apistatus.Body(a.Status)
	case a.document != nil:
		info.Object = a.document()
		info.Truncated = info.Object == nil
	}
	return info
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

// isRequired reports that an answer must not be given which could not be put on record. A refusal
// to be retried later tells nothing of what is in memory, and passing it through would be one
// request too many upstream.
func (r *record) isRequired(code int) bool {
	later := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
	return r.trail.FailClosed() && r.request.canPass && !later
}

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

// newSharedAnswer is the answer to one of the requests that share an answer of upstream's. The
// audit log gets it like an answer from here, if it can be read.
func newSharedAnswer(shared *passthrough.SharedAnswer) *answer {
	a := &answer{Answer: shared.NewAnswer(), shared: true}
	readable := strings.HasPrefix(shared.Header.Get("Content-Type"), "application/json") &&
		shared.Header.Get("Content-Encoding") == ""
	if status := (metav1.Status{}); readable && a.Code >= http.StatusBadRequest &&
		json.Unmarshal(shared.Body, &status) == nil && status.Kind == "Status" {
		a.Status = &status
	}
	a.document = func() []byte {
		if !readable || len(shared.Body) > audit.MaxObject {
			return nil
		}
		return shared.Body
	}
	return a
}
