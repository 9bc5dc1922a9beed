package serve

import (
	"spillway/internal/apistatus"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// turnAway answers while upstream has been away since the start, so that its state is not known; it
// reports false once upstream has answered.
//
// A watch receives what upstream sends while it fills its watch cache: of all answers, 429 alone
// makes client-go's informers retry the same watch, as without an answer. After anything else they
// list anew, all at once, as soon as they can. All other requests receive what passing them on
// would yield.
func (s *Server) turnAway(c call, r plan.Request) bool {
	if s.opts.Away == nil {
		return false
	}
	why := s.opts.Away()
	if why == nil {
		return false
	}
	status := apistatus.Unavailable("upstream apiserver is unavailable: " + passthrough.FailureKind(why))
	query := r.Query()
	if t, ok := plan.ParseTarget(r.Path); ok && t.Watches(query) {
		status = apistatus.NotReady(apistatus.RetryAfter())
	}
	apistatus.WriteAs(c, failureFormOf(r, query.Get("pretty")), status)
	return true
}

// failureFormOf is the form of a refusal that only we can word.
func failureFormOf(r plan.Request, pretty string) apistatus.StatusFormat {
	if form, ok := plan.NegotiateFailure(r.Accept, plan.WantsPretty(pretty, r.UserAgent)); ok {
		return form
	}
	return apistatus.StatusFormat{Indented: true} // as upstream does for want of a form
}
