package serve

import (
	"net/http"

	"spillway/internal/apistatus"
	"spillway/internal/plan"
)

// ReadinessPath is where the main listeners say whether this proxy is ready, without a question to
// the apiserver. /readyz there is the apiserver's own and passes through. No path of a
// kube-apiserver begins with /spillway.
const ReadinessPath = "/spillway/readyz"

// ready answers a probe of this proxy's own readiness, and reports whether the request is one.
// Probes bring no credentials: the answer is yes or no, and why not is for --metrics-listen.
func (s *Server) ready(c call, r plan.Request) bool {
	if s.opts.Ready == nil || r.Path != ReadinessPath || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	apistatus.SetCommonHeaders(c, "text/plain; charset=utf-8")
	c.SetHeader("X-Content-Type-Options", "nosniff")
	if s.opts.Ready() != nil {
		c.Send(http.StatusInternalServerError, []byte("not ready\n"))
		return true
	}
	c.Send(http.StatusOK, []byte("ok"))
	return true
}
