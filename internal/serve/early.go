package serve

import (
	"net/http"

	"spillway/internal/apistatus"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// answerEarly is the answer to a request that does not depend on its sender; nil: it has none.
func (s *Server) answerEarly(r *request) *apistatus.Answer {
	if g := r.listener.Guard; g != nil {
		if status := g.Refusal(r.GuardedRequest()); status != nil {
			a := apistatus.Failure(status)
			a.HangUp = true
			return a
		}
	}
	if s.isReadinessProbe(r.parsed) {
		return s.readinessAnswer()
	}
	return s.unavailableAnswer(r)
}

// ReadinessPath is where the main listeners say whether this proxy is ready, without the API
// server. /readyz there is the API server's own and passes through. No path of a kube-apiserver
// begins with /spillway.
const ReadinessPath = "/spillway/readyz"

// isReadinessProbe reports that a request is for this proxy's own readiness.
func (s *Server) isReadinessProbe(r plan.Request) bool {
	return s.opts.Ready != nil && r.Path == ReadinessPath && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// readinessAnswer answers a probe of this proxy's own readiness. Probes bring no credentials: the
// answer is yes or no, and why not is for --metrics-listen.
func (s *Server) readinessAnswer() *apistatus.Answer {
	if s.opts.Ready() != nil {
		return apistatus.Text(http.StatusInternalServerError, "not ready\n")
	}
	return apistatus.Text(http.StatusOK, "ok")
}

// unavailableAnswer is the answer while upstream has been unreachable since the start, so that its
// state is not known; nil once upstream has answered.
//
// A watch receives upstream's answer while its watch cache fills: only after a 429 client-go's
// informers retry the same watch. After any other answer they list again, all at once, as soon as
// they can. All other requests receive what passing them through would yield.
func (s *Server) unavailableAnswer(r *request) *apistatus.Answer {
	if s.opts.Unreachable == nil {
		return nil
	}
	why := s.opts.Unreachable()
	if why == nil {
		return nil
	}
	status := apistatus.Unavailable("upstream API server is unavailable: " + passthrough.FailureKind(why))
	if t, ok := plan.ParseTarget(r.parsed.Path); ok && t.Watches(r.parsed.Query()) {
		status = apistatus.NotReady(apistatus.RetryAfter())
	}
	return apistatus.FailureAs(r.failureFormat(), status)
}
