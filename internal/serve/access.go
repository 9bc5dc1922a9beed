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

// Access is what finds out who sends requests, whether they may have what they ask for, and whether
// those who watch still may. It needs all three.
type Access struct {
	Authenticator *auth.Authenticator
	Authorizer    *auth.Authorizer
	Reauthorizer  *reauth.Reauthorizer
	// Owner is the name of the only user who is let in at all, by a token of his; empty: whoever
	// upstream lets in.
	Owner string
}

// visitor is who sends a request, as far as that is known and matters for its answer.
type visitor struct {
	came  time.Time        // when the request did
	flow  flowcontrol.Flow // whom the limits count the request for
	agent string           // what the client says that it is
	trace *trace           // of the request
	// admitted: the request may be answered from memory. grant is what that rests on; nil: it rests on
	// the listener, whose clients may have everything that is mirrored.
	admitted bool
	grant    *grant
	// stranded: the client proved itself by a certificate, which upstream cannot be shown. A request
	// that passes through as it is would be somebody else's there, so it does not; but who it is from
	// may be impersonated. nil: that is not known.
	stranded bool
	who      *auth.Identity
	// self is whom the proxy itself is, if the request acts as it and that is to be put on record.
	self *auth.Identity
	// unasked: upstream could not be asked whether the request is allowed. denied: it was, and says
	// no, as it would to the request itself.
	unasked, denied bool
	reason          string // of those who were denied it, the authorizer's own
	// busy: too many are being asked about already.
	busy bool
}

// grant is what one request is answered from memory by: upstream knows who sends it, and allows it.
// A watch goes on by it.
type grant struct {
	by       *reauth.Reauthorizer
	result   auth.Result
	what     auth.Attributes
	decision auth.Decision
}

// permit is what a watch goes on by; nil: it rests on the listener.
func (g *grant) permit() func(reauth.ReviewedStream) *reauth.Permit {
	if g == nil {
		return nil
	}
	return func(st reauth.ReviewedStream) *reauth.Permit { return g.by.Admit(g.result, g.what, g.decision, st) }
}

// client is the sender of a request, for operators. Its name is empty if it was not asked for.
func (v *visitor) client() watch.ClientInfo {
	user := ""
	if v.grant != nil {
		user = v.grant.result.Identity.Name()
	}
	return watch.NewClient(user, v.agent)
}

// visit finds out who sends a request, and whether he may have what it asks for. Upstream is asked
// only where the answer may come from memory; it answers everything else itself. Errors let nobody
// in: whoever is not known, or not known to be allowed, passes through, and upstream has the last
// word. A status is the answer to who is known and not allowed (W-174).
func (s *Server) visit(c call, r plan.Request, candidate bool, front Front) (visitor, *metav1.Status) {
	switch {
	case front.AnswerAll:
		c.Proven()
		return visitor{admitted: true}, nil
	case front.Identity == passthrough.IdentitySelf && len(c.Headers(passthrough.OwnIdentity)) == 0:
		c.Proven()
		v := visitor{admitted: true}
		if front.Self != nil {
			v.self = front.Self()
		}
		return v, nil
	case front.Access == nil:
		return visitor{}, nil
	case front.Access.Owner != "":
		return front.Access.owner(s.base, c, r, candidate)
	}
	peer := c.Certificates()
	if !candidate && len(peer) == 0 {
		return visitor{}, nil
	}
	a := front.Access
	request := auth.AuthnRequest{Header: c.Headers(a.Authenticator.Reads), Peer: peer}
	result := a.Authenticator.Authenticate(s.base, request)
	if result.Outcome != auth.Authenticated {
		v, refusal := unknownVisitor(result, request)
		v.busy = errors.Is(result.Err, auth.ErrBusy)
		return v, refusal
	}
	c.Proven()
	v := visitor{stranded: result.Credential.Certified(), who: result.Identity}
	if !candidate {
		return v, nil
	}
	return a.authorized(s.base, r, result, v)
}

// authorized finds out whether somebody may have what he asks for.
func (a *Access) authorized(ctx context.Context, r plan.Request, result auth.Result, v visitor) (visitor,
	*metav1.Status) {
	what, ok := auth.AttributesOf(r.Method, r.Path, r.RawQuery)
	if !ok {
		return v, nil
	}
	v.who = result.Identity
	decision := a.Authorizer.Authorize(ctx, result.Identity, what)
	switch decision.Verdict {
	case auth.Allowed:
		v.admitted, v.grant = true, &grant{a.Reauthorizer, result, what, decision}
	case auth.Denied:
		v.denied, v.reason = true, decision.Reason
		return v, auth.Forbidden(result.Identity, what, decision.Reason)
	default:
		v.unasked, v.busy = !errors.Is(decision.Err, auth.ErrNotText), errors.Is(decision.Err, auth.ErrBusy)
	}
	return v, nil
}

// owner lets in who bears a token of the listener's owner, and nobody else: not even upstream hears
// of him from here. Whom the owner wants to impersonate is upstream's to judge.
func (a *Access) owner(ctx context.Context, c call, r plan.Request, candidate bool) (visitor, *metav1.Status) {
	headers := c.Headers(a.Authenticator.Reads)
	token := auth.AuthnRequest{Header: http.Header{"Authorization": headers["Authorization"]}}
	result := a.Authenticator.Authenticate(ctx, token)
	switch {
	case errors.Is(result.Err, auth.ErrBusy):
		return visitor{busy: true}, nil
	case result.Outcome == auth.Unknown:
		return visitor{}, apistatus.Unavailable("upstream could not be asked whose token this is")
	case result.Outcome != auth.Authenticated:
		return visitor{}, apistatus.Unauthorized()
	case result.Identity.Name() != a.Owner:
		return visitor{who: result.Identity}, apistatus.Forbidden("this listener is for " + a.Owner +
			" alone, and the token is somebody else's")
	}
	c.Proven()
	if !candidate || len(headers) > 1 {
		return visitor{}, nil
	}
	return a.authorized(ctx, r, result, visitor{})
}

// unknownVisitor is one who is not known. Upstream says what it thinks of him; but of a certificate
// only we can say that it is no good, and whether it would have been the one to impersonate
// somebody with is nothing that upstream could find out.
func unknownVisitor(result auth.Result, r auth.AuthnRequest) (visitor, *metav1.Status) {
	if !result.Certificate {
		return visitor{}, nil
	}
	if result.Outcome == auth.Refused && len(r.Header["Authorization"]) == 0 {
		return visitor{}, apistatus.Unauthorized()
	}
	return visitor{stranded: result.Outcome == auth.Impersonating}, nil
}

// sendAway answers who could not be asked about because too many others are: passing them all
// through would be more for upstream than the questions are (design D13).
func (s *Server) sendAway(c call) {
	apistatus.WriteTooManyRequests(c, apistatus.RetryAfter())
}

// pass passes a request through, if it is there what it is here.
func (s *Server) pass(c call, v visitor, h passthrough.AnswerHooks) {
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
func (v *visitor) notPassed(err error) *metav1.Status {
	var uncarriable *auth.UncarriableError
	switch {
	case v.unasked:
		return apistatus.Unavailable("upstream could not be asked whether this is allowed")
	case errors.As(err, &uncarriable):
		return apistatus.Forbidden(
			"this request is not answered from memory, and its identity cannot be sent to the apiserver in a header: " +
				uncarriable.Error() + ": use a bearer token, the apiserver itself, or another name")
	}
	return apistatus.Forbidden(
		"this request is not answered from memory, and the client certificate that it came with cannot be shown " +
			"to the apiserver: use a bearer token for it, or the apiserver itself")
}

// refuseVisitor answers who may not have what he asks for. In a form that is not made here upstream
// says it, where it would say the same; whom only we can refuse does not get past us by asking for
// that form.
func (s *Server) refuseVisitor(c call, r plan.Request, v visitor, status *metav1.Status) {
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
