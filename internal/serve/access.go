package serve

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
)

// Access authenticates requests, authorizes them, and reviews running watches again. It needs all
// three.
type Access struct {
	Authenticator *auth.Authenticator
	Authorizer    *auth.Authorizer
	Reauthorizer  *reauth.Reauthorizer
	// Owner is the name of the only user that is admitted at all, by a token of its own; empty: all
	// users that upstream admits.
	Owner string
}

// requester is the sender of a request, as far as it is known and matters for the answer.
type requester struct {
	access verdict
	// grant is what an admission rests on; nil: it rests on the listener, whose clients may have
	// everything that is mirrored.
	grant    *authorization
	identity *auth.Identity // nil: the user is not known
	// hasCertificate: the client is authenticated by a certificate, which upstream cannot be shown.
	// Such a request would have another identity there, so it passes through by impersonation or not
	// at all.
	hasCertificate bool
	// self is the proxy's own identity, if the request acts under it and that goes on record.
	self         *auth.Identity
	denialReason string // of a denied request, the authorizer's own
}

// verdict is whether a request may be answered from memory.
type verdict uint8

const (
	verdictNone       verdict = iota // no review was made: upstream has the last word
	verdictAdmitted                  // it may
	verdictDenied                    // upstream refused it, as it would refuse the request itself
	verdictUnanswered                // the review was not answered
	verdictBusy                      // too many reviews are under way
)

// isAdmitted reports that the request may be answered from memory.
func (r *requester) isAdmitted() bool { return r.access == verdictAdmitted }

// authorization is what allows one request to be answered from memory: upstream knows its user, and
// allows it.
type authorization struct {
	reauthorizer *reauth.Reauthorizer
	result       auth.Result
	what         auth.Attributes
	decision     auth.Decision
}

// admitStream has a watch reviewed again while it lasts; nil: the watch rests on the listener.
func (g *authorization) admitStream() func(reauth.ReviewedStream) *reauth.Lease {
	if g == nil {
		return nil
	}
	return func(st reauth.ReviewedStream) *reauth.Lease {
		return g.reauthorizer.Admit(g.result, g.what, g.decision, st)
	}
}

// clientInfo is the sender of a request, for operators. Its name is empty if it was not needed.
func (r *request) clientInfo() watch.ClientInfo {
	user := ""
	if r.grant != nil {
		user = r.grant.result.Identity.Name()
	}
	return watch.NewClient(user, r.parsed.UserAgent)
}

// identify authenticates a request and authorizes it. It requests reviews only of a candidate for
// an answer from memory; upstream answers everything else itself. Errors admit no request: if its
// user is not known, or not known to be allowed, it passes through, and upstream has the last word.
// A refusal is the answer to a known user that is not allowed (W-174).
func (s *Server) identify(r *request, isCandidate bool) (refusal *metav1.Status) {
	listener := r.listener
	switch {
	case listener.AnswerAll:
		r.MarkProven()
		r.access = verdictAdmitted
		return nil
	case listener.Identity == passthrough.IdentitySelf && len(r.Headers(passthrough.IsIdentityHeader)) == 0:
		r.MarkProven()
		r.access = verdictAdmitted
		if listener.Self != nil {
			r.self = listener.Self()
		}
		return nil
	case listener.Access == nil:
		return nil
	case listener.Access.Owner != "":
		return listener.Access.admitOwner(s.base, r, isCandidate)
	}
	peer := r.Certificates()
	if !isCandidate && len(peer) == 0 {
		return nil
	}
	a := listener.Access
	request := auth.AuthnRequest{Header: r.Headers(a.Authenticator.ReadsHeader), Peer: peer, From: r.Address()}
	result := a.Authenticator.Authenticate(s.base, request)
	if result.Outcome != auth.Authenticated {
		return r.noteUnauthenticated(result, request)
	}
	r.MarkProven()
	r.hasCertificate, r.identity = result.Credential.IsCertificate(), result.Identity
	if !isCandidate {
		return nil
	}
	return a.authorize(s.base, r, result)
}

// authorize finds out whether a user may have what a request is for.
func (a *Access) authorize(ctx context.Context, r *request, result auth.Result) *metav1.Status {
	what, ok := auth.AttributesOf(r.parsed.Method, r.parsed.Path, r.parsed.RawQuery)
	if !ok {
		return nil
	}
	r.identity = result.Identity
	decision := a.Authorizer.Authorize(ctx, result.Identity, what)
	switch {
	case decision.Verdict == auth.Allowed:
		r.access, r.grant = verdictAdmitted, &authorization{a.Reauthorizer, result, what, decision}
	case decision.Verdict == auth.Denied:
		r.access, r.denialReason = verdictDenied, decision.Reason
		return auth.Forbidden(result.Identity, what, decision.Reason)
	case errors.Is(decision.Err, auth.ErrBusy):
		r.access = verdictBusy
	case !errors.Is(decision.Err, auth.ErrNotText):
		r.access = verdictUnanswered
	}
	return nil
}

// admitOwner admits requests with a token of the listener's owner, and no others: these do not even
// reach upstream. Upstream judges whether the owner may impersonate another user.
func (a *Access) admitOwner(ctx context.Context, r *request, isCandidate bool) *metav1.Status {
	headers := r.Headers(a.Authenticator.ReadsHeader)
	token := auth.AuthnRequest{Header: http.Header{"Authorization": headers["Authorization"]}}
	result := a.Authenticator.Authenticate(ctx, token)
	switch {
	case errors.Is(result.Err, auth.ErrBusy):
		r.access = verdictBusy
		return nil
	case result.Outcome == auth.Unknown:
		return apistatus.Unavailable("upstream did not answer whose token this is")
	case result.Outcome != auth.Authenticated:
		return apistatus.Unauthorized()
	case result.Identity.Name() != a.Owner:
		r.identity = result.Identity
		return apistatus.Forbidden("this listener is for " + a.Owner + " alone, and the token is another user's")
	}
	r.MarkProven()
	if !isCandidate || len(headers) > 1 {
		return nil
	}
	return a.authorize(ctx, r, result)
}

// noteUnauthenticated notes a sender without a known user. Upstream judges its token. It does not
// see an invalid certificate, nor that a valid one would have allowed impersonation, so these are
// refused here.
func (r *request) noteUnauthenticated(result auth.Result, sent auth.AuthnRequest) (refusal *metav1.Status) {
	if errors.Is(result.Err, auth.ErrBusy) {
		r.access = verdictBusy
	}
	if !result.HasCertificate {
		return nil
	}
	if result.Outcome == auth.Refused && len(sent.Header["Authorization"]) == 0 {
		return apistatus.Unauthorized()
	}
	r.hasCertificate = result.Outcome == auth.Impersonating
	return nil
}

// refuseRequester refuses a request that is not allowed. If the client accepts no form that is made
// here, the request passes through to be refused there, but not one that only the proxy refuses.
func (r *request) refuseRequester(status *metav1.Status) outcome {
	if _, ok := r.negotiateFailure(); !ok && r.access == verdictDenied {
		return r.passThrough()
	}
	return answerOutcome(apistatus.FailureAs(r.failureFormat(), status))
}

// refuseBusy refuses a request while too many reviews are under way: passing such requests through
// would cost upstream more than the reviews do (design D13).
func refuseBusy() outcome { return answerOutcome(apistatus.TooManyRequests(apistatus.RetryAfter())) }

// flowOf is the flow that the limits count a request for: its user, if it is known already or was
// authenticated lately, else its address (design D13). No review is requested for this. What a
// request only claims counts for nothing, or every made-up token would be a user with a share.
func flowOf(r *request) flowcontrol.Flow {
	who := r.identity
	switch {
	case r.grant != nil:
		who = r.grant.result.Identity
	case who == nil && !r.isAdmitted() && r.listener.Access != nil:
		who = r.listener.Access.Authenticator.RecallIdentity(auth.AuthnRequest{Header: r.Headers(isAuthorization)})
	}
	if who != nil {
		return flowcontrol.UserFlow(who.Name())
	}
	return flowcontrol.AddrFlow(r.Address())
}

func isAuthorization(key string) bool { return key == "Authorization" }

// ownerOf is the user or address that the hub counts a watch for.
func ownerOf(flow flowcontrol.Flow) fanout.Owner {
	if flow.User != "" {
		return fanout.Owner("user " + flow.User)
	}
	return fanout.Owner("address " + flow.Addr.String())
}
