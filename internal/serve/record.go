package serve

import (
	"net/http"
	"net/url"
	"strings"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/plan"
)

// record puts the answer to a request on record. What passes through is upstream's to record, under
// the client's own name, so no request is in both audit logs. A nil record keeps none.
//
// Invariant: an answer that is given here is put on record once, before it is sent.
type record struct {
	trail   *audit.Logger
	request *request
	entry   *audit.RequestRecord // nil: the policy wants none, or was not evaluated yet
	isBegun bool                 // the policy was evaluated
	isDone  bool                 // the request is on record, or upstream's to record
}

// putOutcome puts an answer, or the start of a watch, on record. It reports false if that failed
// and the request must not be answered here without.
func (r *record) putOutcome(o outcome) bool {
	if r == nil || r.isDone {
		return true
	}
	r.isDone = true
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
		r.isDone = true
	}
}

// close puts a request on record that has no answer yet: its handler panicked.
func (r *record) close() {
	if r == nil || r.isDone {
		return
	}
	if entry := r.begin(); entry != nil {
		_ = entry.Panicked() // that it failed is counted and logged, and the answer tells nothing
	}
}

// begin evaluates the policy, once the sender of the request is known.
func (r *record) begin() *audit.RequestRecord {
	if !r.isBegun {
		r.isBegun, r.entry = true, r.trail.Entry(r.info())
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
		info.Decision, info.Reason = "forbid", from.denialReason
	case from.grant != nil:
		info.Decision, info.Reason = "allow", from.grant.decision.Reason
	}
	return info
}

// response is what is put on record of an answer: its body, too, if that is to be kept.
func (r *record) response(a *answer, keepsBody bool) audit.ResponseInfo {
	info := audit.ResponseInfo{Code: a.Code, Status: a.Status}
	switch {
	case !keepsBody:
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

// isRequired reports that an answer with a code must not be given unless it is on record. A refusal
// until later tells nothing of what is in memory, and passing the request through would add to the
// load that it is refused for.
func (r *record) isRequired(code int) bool {
	isUntilLater := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
	return r.trail.FailClosed() && r.request.canPass && !isUntilLater
}
