package auth

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"strings"
)

// AuthnRequest is what authentication reads of a request.
type AuthnRequest struct {
	// Header has at least the headers of Authenticator.ReadsHeader, by their canonical keys.
	Header http.Header
	// Peer are the certificates that the client sent, its own first. The handshake has shown that the
	// client holds the key of its own, and nothing else.
	Peer []*x509.Certificate
	// From is the client's address. Verifications of signatures take turns among addresses, so that
	// one address cannot delay the others.
	From netip.Addr
}

const (
	authorizationHeader = "Authorization"
	impersonatePrefix   = "Impersonate-"
)

// impersonates reports that the request asks for another identity. The API server knows four such
// headers. Every header that begins like them counts here: a request too many that passes through
// does no harm.
func (r AuthnRequest) impersonates() bool {
	for name := range r.Header {
		if hasPrefixFold(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

// bearer is the only bearer token of the request. Of two, neither proves anything: the API server
// reads the first, and a proxy in front of this one may read the last.
func (r AuthnRequest) bearer() (Secret, bool) {
	if len(r.Header[authorizationHeader]) != 1 {
		return Secret{}, false
	}
	return BearerToken(r.Header)
}

// BearerToken is the token that kube-apiserver reads in headers: in the first Authorization, after
// the scheme, up to the next blank. The scheme is bearer in upper or lower case. In an upgrade it
// also reads a WebSocket's subprotocol (W-119), which is not looked at here.
func BearerToken(h http.Header) (Secret, bool) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(h.Get(authorizationHeader)), " ")
	token, _, _ := strings.Cut(rest, " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return Secret{}, false
	}
	return NewSecret(token), true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
