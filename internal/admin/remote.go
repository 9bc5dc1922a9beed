package admin

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
)

// remote serves next to users of other machines: to those that the apiserver allows to get that
// very path (design D16), such as system:monitoring /metrics. Any doubt is a refusal.
type remote struct {
	access func() (*auth.Authenticator, *auth.Authorizer) // nil: there are no remote users
	away   func() error                                   // nil function: access may be called
	secure bool                                           // over TLS; credentials are not taken otherwise
	next   http.Handler
}

// ServeHTTP implements http.Handler.
func (s remote) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.secure || s.access == nil {
		http.Error(w, "forbidden: this listener is not on loopback and does not authenticate, so only /livez and "+
			"/readyz are served here; "+
			"set --metrics-tls, without --insecure-allow-all, or a loopback address such as --metrics-listen=127.0.0.1:9464, "+
			"for the rest", http.StatusForbidden)
		return
	}
	if s.away != nil && s.away() != nil {
		authzUnavailable(w)
		return
	}
	request := auth.AuthnRequest{Header: r.Header}
	if r.TLS != nil {
		request.Peer = r.TLS.PeerCertificates
	}
	authenticator, authorizer := s.access()
	result := authenticator.Authenticate(r.Context(), request)
	if result.Outcome == auth.Unknown {
		authzUnavailable(w)
		return
	}
	if result.Outcome != auth.Authenticated {
		writeRefusal(w, &metav1.Status{Message: "Unauthorized", Reason: metav1.StatusReasonUnauthorized,
			Code: http.StatusUnauthorized})
		return
	}
	what, ok := auth.AttributesOf(r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch decision := authorizer.Authorize(r.Context(), result.Identity, what); decision.Verdict {
	case auth.Allowed:
		s.next.ServeHTTP(w, r)
	case auth.Denied:
		writeRefusal(w, auth.Forbidden(result.Identity, what, decision.Reason))
	default:
		authzUnavailable(w)
	}
}

func authzUnavailable(w http.ResponseWriter) {
	writeRefusal(w, &metav1.Status{
		Message: "the apiserver did not answer whether this is allowed", Reason: metav1.StatusReasonServiceUnavailable,
		Code: http.StatusServiceUnavailable,
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

// loopbackOnly serves requests for this machine by a name that no other machine can have: web pages
// reach loopback by names of their own, which then mean it (DNS rebinding), and would read which
// user watches what.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "forbidden: ask for this page at localhost, 127.0.0.1 or [::1]", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
