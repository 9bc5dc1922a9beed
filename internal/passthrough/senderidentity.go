package passthrough

import (
	"errors"
	"net/http"
	"slices"

	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
)

// IdentityMode decides whose credentials a plain listener's requests have upstream.
type IdentityMode int

const (
	// IdentityClient forwards what the client sent: a client without credentials has none upstream.
	IdentityClient IdentityMode = iota
	// IdentitySelf lends the proxy's own credentials to requests that bring none.
	IdentitySelf
)

// SenderIdentity decides whose credentials a request has upstream: its own, those of an
// impersonator of its sender, or, if it has none and the listener says so, the proxy's. Each has
// transports of its own, and they are never mixed (design D12).
type SenderIdentity struct {
	Listener IdentityMode
	As       *auth.Impersonation // of a sender whose certificate upstream cannot be shown; nil: there is none
	Flow     flowcontrol.Flow    // that the limits count the request for
	Trusted  bool                // the listener trusts all of its clients
}

// canActAsSelf reports that a request with these headers is lent the proxy's own credentials.
func (s SenderIdentity) canActAsSelf(in http.Header) bool {
	return s.As == nil && s.Listener == IdentitySelf &&
		!HasOwnCredentials(in["Authorization"], in["Sec-Websocket-Protocol"])
}

// isProven reports that the sender of a request is known, here or upstream: to claim a name costs
// nothing.
func (f *Forwarder) isProven(sender SenderIdentity, in http.Header) bool {
	return sender.Trusted || sender.Flow.User != "" || sender.canLend(in) || f.tokens.hasToken(in)
}

// canLend reports that a request with these headers travels under credentials that are not its own.
func (s SenderIdentity) canLend(in http.Header) bool { return s.As != nil || s.canActAsSelf(in) }

// transport carries a request upstream; nil: there is none.
func (f *Forwarder) transport(sender SenderIdentity, in *Inbound) http.RoundTripper {
	switch {
	case sender.As != nil:
		through := f.opts.As.carrier(in, true)
		if through == nil || !f.isLendable(sender.As) {
			return nil
		}
		return sender.As.Through(through)
	case sender.canActAsSelf(in.Header):
		return f.opts.Self.carrier(in, true)
	}
	// Upstream reads credentials in a subprotocol of an upgrade alone, which has the same carrier
	// without credentials.
	return f.opts.Client.carrier(in, len(in.Header["Authorization"]) > 0)
}

// errNotLent is why a request cannot pass through by impersonation, even if its identity fits into
// headers.
var errNotLent = errors.New("nothing impersonates this identity")

// Lend puts an identity into the form in which upstream reads exactly that identity, if it may be
// impersonated. The error is errNotLent or an *auth.UnencodableIdentityError.
func (f *Forwarder) Lend(who *auth.Identity) (*auth.Impersonation, error) {
	if who == nil || f.opts.As.Any == nil {
		return nil, errNotLent
	}
	as, err := auth.NewImpersonation(who)
	if err != nil {
		return nil, err
	}
	if !f.isLendable(as) {
		return nil, errNotLent
	}
	return as, nil
}

// isLendable reports that an identity may be impersonated.
func (f *Forwarder) isLendable(as *auth.Impersonation) bool {
	return f.opts.As.Any != nil && !slices.ContainsFunc(f.opts.NeverAs, as.MemberOf)
}
