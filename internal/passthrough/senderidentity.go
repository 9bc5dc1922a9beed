package passthrough

import (
	"errors"
	"net/http"
	"slices"
	"strings"

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
// impersonator of its sender, or, if it has none and the listener says so, the proxy's.
//
// Each has transports of its own, and they are never mixed (design D12): a request without borrowed
// credentials cannot reach a transport that has some.
type SenderIdentity struct {
	Listener IdentityMode
	As       *auth.Impersonation // proven here by what upstream cannot be shown; nil: upstream sees for itself
	Flow     flowcontrol.Flow    // that the limits count the request for
	Trusted  bool                // the listener trusts all of its clients
}

// isOwnIdentity reports that a request with these headers is lent the proxy's own credentials.
func (b SenderIdentity) isOwnIdentity(in http.Header) bool {
	return b.As == nil && b.Listener == IdentitySelf && !OwnCredentials(in["Authorization"], in["Sec-Websocket-Protocol"])
}

// isProven reports that the sender of a request is known, here or upstream: to claim a name costs
// nothing.
func (f *Forwarder) isProven(b SenderIdentity, in http.Header) bool {
	return b.Trusted || b.Flow.User != "" || b.canLend(in) || f.tokens.hasToken(in)
}

// canLend reports that a request with these headers travels under credentials that are not its own.
func (b SenderIdentity) canLend(in http.Header) bool { return b.As != nil || b.isOwnIdentity(in) }

// transport carries a request upstream; nil: there is none.
func (f *Forwarder) transport(b SenderIdentity, in *Inbound, c class) http.RoundTripper {
	switch {
	case b.As != nil:
		through := f.Opts.As.carrier(in, c, true)
		if through == nil || !f.isLendable(b.As) {
			return nil
		}
		return b.As.Through(through)
	case b.isOwnIdentity(in.Header):
		return f.Opts.Self.carrier(in, c, true)
	}
	// What upstream might take for credentials in the other place for them asks for an upgrade, or is
	// none.
	return f.Opts.Client.carrier(in, c, len(in.Header["Authorization"]) > 0)
}

// errNotLent is why a request is not passed through by impersonation, whatever its identity's
// bytes.
var errNotLent = errors.New("nothing impersonates this identity")

// Lend puts an identity into the form in which upstream reads exactly that identity, if it may be
// impersonated. The error is errNotLent or an *auth.UnencodableIdentityError.
func (f *Forwarder) Lend(who *auth.Identity) (*auth.Impersonation, error) {
	if who == nil || f.Opts.As.Any == nil {
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
	return f.Opts.As.Any != nil && !slices.ContainsFunc(f.Opts.NeverAs, as.MemberOf)
}

// dropIdentityHeaders removes from headers on their way upstream everything that identifies the
// sender: the transport adds another identity.
func dropIdentityHeaders(out http.Header) {
	delete(out, "Authorization")
	for key := range out {
		if strings.HasPrefix(key, "Impersonate-") {
			delete(out, key)
		}
	}
	var protocols []string
	for _, list := range out["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(list, ",") {
			if p = strings.TrimSpace(p); !strings.Contains(p, WebSocketBearer) {
				protocols = append(protocols, p)
			}
		}
	}
	if delete(out, "Sec-Websocket-Protocol"); len(protocols) > 0 {
		out["Sec-Websocket-Protocol"] = []string{strings.Join(protocols, ", ")}
	}
}
