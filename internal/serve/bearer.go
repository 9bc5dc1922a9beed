package serve

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"spillway/internal/auth"
	"spillway/internal/flowcontrol"
)

// Identity is as whom a plain listener's requests reach upstream.
type Identity int

const (
	// IdentityClient forwards what the client sent: who has no credentials has none upstream either.
	IdentityClient Identity = iota
	// IdentitySelf lends the proxy's own credentials to requests that bring none.
	IdentitySelf
)

// bearer is under whose credentials a request reaches upstream: its own, or those of somebody who impersonates who sent it, or, where it
// brings none and the listener says so, the proxy's.
//
// Each has transports of its own, and they are never mixed (design D12): a request without borrowed credentials cannot reach a transport
// that has some.
type bearer struct {
	listener Identity
	as       *auth.Impersonation // proven here by what upstream cannot be shown; nil: upstream sees for itself
	flow     flowcontrol.Flow    // that the limits count the request for
}

// self reports that a request with these headers is lent the proxy's own credentials.
func (b bearer) self(in http.Header) bool {
	return b.as == nil && b.listener == IdentitySelf && !ownCredentials(in["Authorization"], in["Sec-Websocket-Protocol"])
}

// lends reports that a request with these headers travels under credentials that are not its own.
func (b bearer) lends(in http.Header) bool { return b.as != nil || b.self(in) }

// transport carries a request upstream; nil: there is none.
func (f *Forwarder) transport(b bearer, in *inbound, c class) http.RoundTripper {
	switch {
	case b.as != nil:
		through := f.opts.As.carrier(in, c, true)
		if through == nil || !f.lends(b.as) {
			return nil
		}
		return b.as.Through(through)
	case b.self(in.header):
		return f.opts.Self.carrier(in, c, true)
	}
	// What upstream might take for credentials in the other place for them asks for an upgrade, or is none.
	return f.opts.Client.carrier(in, c, len(in.header["Authorization"]) > 0)
}

// errNotLent is why a request is not passed through by impersonation, whatever its identity's bytes.
var errNotLent = errors.New("nothing impersonates this identity")

// lend puts an identity into the form in which upstream reads exactly that identity, if it may be
// impersonated. The error is errNotLent or an *auth.UncarriableError.
func (f *Forwarder) lend(who *auth.Identity) (*auth.Impersonation, error) {
	if who == nil || f.opts.As.Any == nil {
		return nil, errNotLent
	}
	as, err := auth.NewImpersonation(who)
	if err != nil {
		return nil, err
	}
	if !f.lends(as) {
		return nil, errNotLent
	}
	return as, nil
}

// lends reports that an identity may be impersonated.
func (f *Forwarder) lends(as *auth.Impersonation) bool {
	return f.opts.As.Any != nil && !slices.ContainsFunc(f.opts.NeverAs, as.MemberOf)
}

// withoutIdentity takes from headers on their way upstream whatever says who is asking: somebody else will say it.
func withoutIdentity(out http.Header) {
	delete(out, "Authorization")
	for key := range out {
		if strings.HasPrefix(key, "Impersonate-") {
			delete(out, key)
		}
	}
	var protocols []string
	for _, list := range out["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(list, ",") {
			if p = strings.TrimSpace(p); !strings.Contains(p, webSocketBearer) {
				protocols = append(protocols, p)
			}
		}
	}
	if delete(out, "Sec-Websocket-Protocol"); len(protocols) > 0 {
		out["Sec-Websocket-Protocol"] = []string{strings.Join(protocols, ", ")}
	}
}
