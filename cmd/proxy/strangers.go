package main

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
	"spillway/internal/serve"
)

// strangers are those who are not on this machine: what operators see is served to whom the apiserver allows to get that very path (design
// D16), such as system:monitoring /metrics. Any doubt is a refusal.
type strangers struct {
	access *serve.Access // nil: nobody can be asked about
	away   func() error  // why nobody can be asked about yet, nil once that can be; no function: it can be. Access is not read before
	secure bool          // over TLS; credentials are not taken otherwise
	next   http.Handler
}

// ServeHTTP implements http.Handler.
func (s strangers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.secure || s.access == nil {
		http.Error(w, "forbidden: this listener is not on loopback and does not ask who is asking, so only /livez and /readyz are served here; "+
			"set --metrics-tls, without --insecure-allow-all, or a loopback address such as --metrics-listen=127.0.0.1:9464, for the rest", http.StatusForbidden)
		return
	}
	if s.away != nil && s.away() != nil {
		unaskable(w)
		return
	}
	request := auth.Request{Header: r.Header}
	if r.TLS != nil {
		request.Peer = r.TLS.PeerCertificates
	}
	result := s.access.Authenticator.Authenticate(r.Context(), request)
	if result.Outcome == auth.Unknown {
		unaskable(w)
		return
	}
	if result.Outcome != auth.Authenticated {
		writeRefusal(w, &metav1.Status{Message: "Unauthorized", Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized})
		return
	}
	what, ok := auth.AttributesOf(r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch decision := s.access.Authorizer.Authorize(r.Context(), result.Identity, what); decision.Verdict {
	case auth.Allowed:
		s.next.ServeHTTP(w, r)
	case auth.Denied:
		writeRefusal(w, auth.Forbidden(result.Identity, what, decision.Reason))
	default:
		unaskable(w)
	}
}

func unaskable(w http.ResponseWriter) {
	writeRefusal(w, &metav1.Status{
		Message: "the apiserver could not be asked whether this is allowed", Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable,
	})
}

// writeRefusal answers as a kube-apiserver refuses (W-174).
func writeRefusal(w http.ResponseWriter, s *metav1.Status) {
	s.TypeMeta, s.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s) // the client may be gone
}
