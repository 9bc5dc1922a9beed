package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
)

// rememberedReviewWait is how long a reader of metrics that is remembered waits for its review:
// less than any scrape takes to time out.
const rememberedReviewWait = 2 * time.Second

// remoteUsers serves next to users of other machines: to those that the API server allows to get
// that very path (design D16), such as system:monitoring /metrics. Any doubt is a refusal, except
// that readers of metrics go on reading them while no review can be had (see metricsReaders).
type remoteUsers struct {
	access      func() (*auth.Authenticator, *auth.Authorizer) // nil: there are no remote users
	unreachable func() error                                   // nil function: access may be called
	secure      bool                                           // over TLS; credentials are not taken otherwise
	readers     *metricsReaders
	reviews     *singleflight.Group // of readers that are remembered, each once at a time
	next        http.Handler
}

// ServeHTTP implements http.Handler.
func (u *remoteUsers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !u.secure || u.access == nil {
		http.Error(w, "forbidden: this listener is not on loopback and does not authenticate, so only /livez and "+
			"/readyz are served here; "+
			"set --metrics-tls, without --insecure-allow-all, or a loopback address such as --metrics-listen=127.0.0.1:9464, "+
			"for the rest", http.StatusForbidden)
		return
	}
	if u.unreachable != nil {
		if err := u.unreachable(); err != nil {
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
	judge := u.judge
	if isMetrics(r) {
		judge = u.judgeReader
	}
	if j := judge(r.Context(), request, what); j.refusal != nil {
		writeRefusal(w, j.refusal)
		return
	}
	u.next.ServeHTTP(w, r)
}

// judge finds out whether a request is allowed.
func (u *remoteUsers) judge(ctx context.Context, request auth.AuthnRequest, what auth.Attributes) judgement {
	authenticator, authorizer := u.access()
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

// judgeReader is judge for a reader of metrics. One that is remembered waits for a moment. What
// upstream says after that is remembered, for the next request.
func (u *remoteUsers) judgeReader(ctx context.Context, request auth.AuthnRequest, what auth.Attributes) judgement {
	authenticator, _ := u.access()
	reader := u.readers.digest(authenticator, request)
	review := func(ctx context.Context) judgement {
		j := u.judge(ctx, request, what)
		u.readers.note(reader, j, time.Now())
		return j
	}
	if !u.readers.isAllowed(reader, time.Now()) {
		return review(ctx)
	}
	background := context.WithoutCancel(ctx)
	reviewed := u.reviews.DoChan(string(reader[:]), func() (any, error) { return review(background), nil })
	select {
	case result := <-reviewed:
		if j := result.Val.(judgement); !j.isUnreviewed() {
			return j
		}
	case <-time.After(rememberedReviewWait):
	}
	if !u.readers.isAllowed(reader, time.Now()) { // its time is over, or it was denied meanwhile
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
