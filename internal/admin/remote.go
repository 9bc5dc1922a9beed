package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
)

// rememberedReviewWait is how long a reader of metrics that is remembered waits for its review:
// less than any scrape takes to time out.
const rememberedReviewWait = 2 * time.Second

// remote serves next to users of other machines: to those that the apiserver allows to get that
// very path (design D16), such as system:monitoring /metrics. Any doubt is a refusal, except that
// readers of metrics go on reading them while no review can be had (see metricsReaders).
type remote struct {
	access  func() (*auth.Authenticator, *auth.Authorizer) // nil: there are no remote users
	away    func() error                                   // nil function: access may be called
	secure  bool                                           // over TLS; credentials are not taken otherwise
	readers *metricsReaders
	reviews *singleflight.Group // of readers that are remembered, each once at a time
	next    http.Handler
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
	if s.away != nil {
		if err := s.away(); err != nil {
			writeRefusal(w, unreviewed(err))
			return
		}
	}
	what, ok := auth.AttributesOf(r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	if !ok {
		http.NotFound(w, r)
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	request := auth.AuthnRequest{Header: r.Header, From: from.Addr()}
	if r.TLS != nil {
		request.Peer = r.TLS.PeerCertificates
	}
	judge := s.judge
	if isMetrics(r) {
		judge = s.judgeReader
	}
	if said := judge(r.Context(), request, what); said.refusal != nil {
		writeRefusal(w, said.refusal)
		return
	}
	s.next.ServeHTTP(w, r)
}

// judge finds out whether a request is allowed.
func (s remote) judge(ctx context.Context, request auth.AuthnRequest, what auth.Attributes) judgement {
	authenticator, authorizer := s.access()
	result := authenticator.Authenticate(ctx, request)
	switch result.Outcome {
	case auth.Authenticated:
	case auth.Unknown:
		return judgement{refusal: unreviewed(result.Err)}
	default:
		return judgement{refusal: &metav1.Status{Message: "Unauthorized", Reason: metav1.StatusReasonUnauthorized,
			Code: http.StatusUnauthorized}}
	}
	switch decision := authorizer.Authorize(ctx, result.Identity, what); decision.Verdict {
	case auth.Allowed:
		return judgement{reviewed: decision.At, expires: result.Credential.Expires()}
	case auth.Denied:
		return judgement{refusal: auth.Forbidden(result.Identity, what, decision.Reason)}
	default:
		return judgement{refusal: unreviewed(decision.Err)}
	}
}

// judgeReader is judge for a reader of metrics. One that is remembered waits for a moment; what
// upstream says after that is noted, and is the answer to the next request.
func (s remote) judgeReader(ctx context.Context, request auth.AuthnRequest, what auth.Attributes) judgement {
	authenticator, _ := s.access()
	reader := s.readers.digest(authenticator, request)
	review := func(ctx context.Context) judgement {
		said := s.judge(ctx, request, what)
		s.readers.note(reader, said, time.Now())
		return said
	}
	if !s.readers.isAllowed(reader, time.Now()) {
		return review(ctx)
	}
	background := context.WithoutCancel(ctx)
	reviewed := s.reviews.DoChan(string(reader[:]), func() (any, error) { return review(background), nil })
	select {
	case result := <-reviewed:
		if said := result.Val.(judgement); !said.isUnreviewed() {
			return said
		}
	case <-time.After(rememberedReviewWait):
	}
	if !s.readers.isAllowed(reader, time.Now()) { // its time is over, or it was denied meanwhile
		return judgement{refusal: unreviewed(nil)}
	}
	return judgement{}
}

// unreviewed is the answer to a request that upstream did not review, for a reason.
func unreviewed(why error) *metav1.Status {
	message := "the API server did not answer whether this is allowed"
	var unreviewedErr *auth.NotReviewedError
	if errors.As(why, &unreviewedErr) && unreviewedErr.IsRefused() {
		message = "the API server denied Spillway the review of whether this is allowed: Spillway needs the rights of " +
			"the cluster role system:auth-delegator"
	}
	return &metav1.Status{Message: message, Reason: metav1.StatusReasonServiceUnavailable,
		Code: http.StatusServiceUnavailable}
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
