package serve

import (
	"spillway/internal/apistatus"
	"spillway/internal/watch"
)

// outcome is what becomes of a request. Each stage of the pipeline that settles it returns one, and
// complete carries it out. Exactly one of its parts is set, or none while it is unsettled.
type outcome struct {
	answer  *answer
	stream  *watch.Stream // a watch that is open
	passage *passage      // upstream answers
}

// unsettled is the outcome of a stage without an answer from memory: there is no state to be shown,
// it could not be proven current, or the answer cannot be made here. Server.decide settles it.
var unsettled outcome

// answer is an answer that is given here, and what its record and its trace say of it.
type answer struct {
	*apistatus.Answer
	shared bool // upstream gave it, to several requests at once
	// listSource is the source of a LIST, whose time is observed; empty: it is none, or refused.
	listSource string
	// document makes the content of the answer as JSON, for the audit log, or nil if it is too large
	// to be kept or cannot be made. A refusal has none: its Status is kept.
	document func() []byte
}

// answerOutcome is the outcome of a request with an answer from here.
func answerOutcome(a *apistatus.Answer) outcome { return outcome{answer: &answer{Answer: a}} }

// complete carries out what became of a request. It is the only function that does.
//
// An answer that must be on record and cannot be is upstream's to give: it says the same.
func (r *request) complete(o outcome) {
	if o.stream != nil {
		defer o.stream.Abandon() // if it runs into a bug before it is served
	}
	if o.passage == nil && !r.record.putOutcome(o) {
		o.release()
		r.server.opts.Audit.Passed()
		o = r.passThrough()
	}
	switch {
	case o.answer != nil:
		if o.answer.listSource != "" { // not before it is on record: upstream may answer instead
			r.observeList(o.answer.listSource)
		}
		r.trace.endWithAnswer(o.answer)
		o.answer.WriteAs(r.call, r.auditID())
	case o.stream != nil:
		r.trace.endWithWatch(o.stream)
		r.Watch(o.stream, r.setHeaders)
	default:
		r.record.leaveToUpstream()
		o.passage.forward()
	}
}

// release gives back what an outcome holds that is not carried out.
func (o outcome) release() {
	if o.answer != nil {
		o.answer.Drop()
	}
	if o.stream != nil {
		o.stream.Abandon()
	}
}

// setHeaders sets the headers of a watch's answer that concern the request and its resource.
func (r *request) setHeaders(set func(key, value string)) {
	set(apistatus.AuditIDHeader, r.auditID())
	r.sourceHeaders(set)
}
