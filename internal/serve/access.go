package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
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
	came  time.Time        // when the request did
	flow  flowcontrol.Flow // the limits count the request for it
	agent string           // what the client says that it is
	trace *trace           // of the request
	// admitted: the request may be answered from memory. authorization is what that rests on; nil: it
	// rests on the listener, whose clients may have everything that is mirrored.
	admitted bool
	grant    *authorization
	// stranded: the client is authenticated by a certificate, which upstream cannot be shown. A
	// request that passes through as it is would have another identity there, so it does not; but its
	// user may be impersonated. nil: the user is not known.
	stranded bool
	who      *auth.Identity
	// self is the proxy's own identity, if the request acts under it and that goes on record.
	self *auth.Identity
	// unasked: upstream did not say whether the request is allowed. denied: it refused it, as it would
	// refuse the request itself.
	unasked, denied bool
	reason          string // of a denied request, the authorizer's own
	// busy: too many reviews are under way.
	busy bool
}

// authorization is what allows one request to be answered from memory: upstream knows its user, and
// allows it. A watch goes on by it.
type authorization struct {
	by       *reauth.Reauthorizer
	result   auth.Result
	what     auth.Attributes
	decision auth.Decision
}

// permit is what a watch goes on by; nil: it rests on the listener.
func (g *authorization) permit() func(reauth.ReviewedStream) *reauth.Permit {
	if g == nil {
		return nil
	}
	return func(st reauth.ReviewedStream) *reauth.Permit { return g.by.Admit(g.result, g.what, g.decision, st) }
}

// client is the sender of a request, for operators. Its name is empty if it was not asked for.
func (v *requester) client() watch.ClientInfo {
	user := ""
	if v.grant != nil {
		user = v.grant.result.Identity.Name()
	}
	return watch.NewClient(user, v.agent)
}

// visit authenticates a request and authorizes it. It requests reviews only where the answer may
// come from memory; upstream answers everything else itself. Errors admit no request: one whose
// user is not known, or not known to be allowed, passes through, and upstream has the last word. A
// status is the answer to a known user that is not allowed (W-174).
func (s *Server) visit(c call, r plan.Request, candidate bool, front Front) (requester, *metav1.Status) {
	switch {
	case front.AnswerAll:
		c.Proven()
		return requester{admitted: true}, nil
	case front.Identity == passthrough.IdentitySelf && len(c.Headers(passthrough.OwnIdentity)) == 0:
		c.Proven()
		v := requester{admitted: true}
		if front.Self != nil {
			v.self = front.Self()
		}
		return v, nil
	case front.Access == nil:
		return requester{}, nil
	case front.Access.Owner != "":
		return front.Access.owner(s.base, c, r, candidate)
	}
	peer := c.Certificates()
	if !candidate && len(peer) == 0 {
		return requester{}, nil
	}
	a := front.Access
	request := auth.AuthnRequest{Header: c.Headers(a.Authenticator.Reads), Peer: peer, From: c.Address()}
	result := a.Authenticator.Authenticate(s.base, request)
	if result.Outcome != auth.Authenticated {
		v, refusal := unknownVisitor(result, request)
		v.busy = errors.Is(result.Err, auth.ErrBusy)
		return v, refusal
	}
	c.Proven()
	v := requester{stranded: result.Credential.Certified(), who: result.Identity}
	if !candidate {
		return v, nil
	}
	return a.authorized(s.base, r, result, v)
}

// authorized finds out whether a user may have what a request is for.
func (a *Access) authorized(ctx context.Context, r plan.Request, result auth.Result, v requester) (requester,
	*metav1.Status) {
	what, ok := auth.AttributesOf(r.Method, r.Path, r.RawQuery)
	if !ok {
		return v, nil
	}
	v.who = result.Identity
	decision := a.Authorizer.Authorize(ctx, result.Identity, what)
	switch decision.Verdict {
	case auth.Allowed:
		v.admitted, v.grant = true, &authorization{a.Reauthorizer, result, what, decision}
	case auth.Denied:
		v.denied, v.reason = true, decision.Reason
		return v, auth.Forbidden(result.Identity, what, decision.Reason)
	default:
		v.unasked, v.busy = !errors.Is(decision.Err, auth.ErrNotText), errors.Is(decision.Err, auth.ErrBusy)
	}
	return v, nil
}

// owner admits requests with a token of the listener's owner, and no others: upstream does not even
// see them. Whether the owner may impersonate another user is upstream's to judge.
func (a *Access) owner(ctx context.Context, c call, r plan.Request, candidate bool) (requester, *metav1.Status) {
	headers := c.Headers(a.Authenticator.Reads)
	token := auth.AuthnRequest{Header: http.Header{"Authorization": headers["Authorization"]}}
	result := a.Authenticator.Authenticate(ctx, token)
	switch {
	case errors.Is(result.Err, auth.ErrBusy):
		return requester{busy: true}, nil
	case result.Outcome == auth.Unknown:
		return requester{}, apistatus.Unavailable("upstream did not answer whose token this is")
	case result.Outcome != auth.Authenticated:
		return requester{}, apistatus.Unauthorized()
	case result.Identity.Name() != a.Owner:
		return requester{who: result.Identity}, apistatus.Forbidden("this listener is for " + a.Owner +
			" alone, and the token is another user's")
	}
	c.Proven()
	if !candidate || len(headers) > 1 {
		return requester{}, nil
	}
	return a.authorized(ctx, r, result, requester{})
}

// unknownVisitor is the sender of a request without a known user. Upstream judges its token; but
// upstream sees neither an invalid certificate nor whether a valid one would have allowed
// impersonation, so these are refused here.
func unknownVisitor(result auth.Result, r auth.AuthnRequest) (requester, *metav1.Status) {
	if !result.Certificate {
		return requester{}, nil
	}
	if result.Outcome == auth.Refused && len(r.Header["Authorization"]) == 0 {
		return requester{}, apistatus.Unauthorized()
	}
	return requester{stranded: result.Outcome == auth.Impersonating}, nil
}

// sendAway answers requests that too many reviews keep from being reviewed: passing them all
// through would cost upstream more than the reviews do (design D13).
func (s *Server) sendAway(c call) {
	apistatus.WriteTooManyRequests(c, apistatus.RetryAfter())
}

// pass passes a request through, if it is there what it is here.
func (s *Server) pass(c call, v requester, h passthrough.AnswerHooks) {
	var as *auth.Impersonation
	if v.stranded {
		var err error
		if as, err = s.opts.Forwarder.Lend(v.who); err != nil {
			if h.Head != nil {
				h.Head()
			}
			apistatus.Write(c, v.notPassed(err))
			return
		}
	}
	c.Forward(v.flow, as, h)
}

// notPassed is the answer to a request that is not passed through, since upstream would take it for
// another identity's. err is why there is no impersonation.
func (v *requester) notPassed(err error) *metav1.Status {
	var uncarriable *auth.UnencodableIdentityError
	switch {
	case v.unasked:
		return apistatus.Unavailable("upstream did not answer whether this is allowed")
	case errors.As(err, &uncarriable):
		return apistatus.Forbidden(
			"this request is not answered from memory, and its identity cannot be sent to the apiserver in a header: " +
				uncarriable.Error() + ": use a bearer token, the apiserver itself, or another name")
	}
	return apistatus.Forbidden(
		"this request is not answered from memory, and the client certificate that it came with cannot be shown " +
			"to the apiserver: use a bearer token for it, or the apiserver itself")
}

// refuseVisitor answers a request that is not allowed. In a form that is not made here upstream
// answers it, if it would refuse it, too; a request that only the proxy can refuse cannot evade
// that by such a form.
func (s *Server) refuseVisitor(c call, r plan.Request, v requester, status *metav1.Status) {
	form, ok := plan.NegotiateFailure(r.Accept, plan.WantsPretty(r.Query().Get("pretty"), r.UserAgent))
	switch {
	case ok:
		apistatus.WriteAs(c, form, status)
	case v.denied:
		s.pass(c, v, passthrough.AnswerHooks{})
	default:
		apistatus.WriteAs(c, apistatus.StatusFormat{Indented: true}, status) // as upstream does for want of a form
	}
}
