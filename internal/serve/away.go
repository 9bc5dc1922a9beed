package serve

import (
	"spillway/internal/apistatus"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// turnAway answers while upstream has been away since the start, so that nothing is known of what
// it has; it reports false once it has been there.
//
// A watch is told what upstream tells one whose cache it is filling: of all answers, 429 alone has
// client-go's informers come back for the same watch, as if nobody had answered. After anything
// else they list anew, and all at once, as soon as they can. Everybody else is told what would come
// of passing the request on.
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
