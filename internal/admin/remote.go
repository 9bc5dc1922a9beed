package admin

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/singleflight"

	"spillway/internal/apistatus"
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
	if !u.secure { // a sidecar's: every other listener has TLS, if it is not on loopback
		http.Error(w, "forbidden: a sidecar's listener does not authenticate, so only /livez and "+
			"/readyz?verbose are served here; a sidecar shows its metrics and watches to no client", http.StatusForbidden)
		return
	}
	if u.access == nil {
		http.Error(w, "forbidden: this listener is not on loopback and does not authenticate, so only /livez and "+
			"/readyz are served here; "+
			"for the rest, remove --insecure-allow-all, or use a loopback address such as "+
			"--metrics-listen=127.0.0.1:9464", http.StatusForbidden)
		return
	}
	if u.unreachable != nil {
		if err := u.unreachable(); err != nil {
			writeRefusal(w, unreviewed(err).refusal)
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
	if j := judge(r.Context(), request, what); j.verdict != auth.Allowed {
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
		return unreviewed(result.Err)
	default:
		return judgement{verdict: auth.Denied, refusal: apistatus.Unauthorized()}
	}
	switch decision := authorizer.Authorize(ctx, result.Identity, what); decision.Verdict {
	case auth.Allowed:
		return judgement{verdict: auth.Allowed, reviewed: decision.At, expires: result.Credential.Expires()}
	case auth.Denied:
		return judgement{verdict: auth.Denied, refusal: auth.Forbidden(result.Identity, what, decision.Reason)}
	default:
		return unreviewed(decision.Err)
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
		if j := result.Val.(judgement); j.verdict != auth.Unreviewed {
			return j
		}
	case <-time.After(rememberedReviewWait):
	}
	if !u.readers.isAllowed(reader, time.Now()) { // its time is over, or it was denied meanwhile
		return unreviewed(nil)
	}
	return judgement{verdict: auth.Allowed}
}
