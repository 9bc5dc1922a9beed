package auth

import (
	"crypto/x509"
	"net/http"
	"strings"
)

// AuthnRequest is what authentication looks at.
type AuthnRequest struct {
	// Header has at least the headers that Authenticator.Reads names, by their canonical keys.
	Header http.Header
	// Peer are the certificates that the client sent, its own first. That it holds the key to it is
	// known by the handshake; nothing else about them is.
	Peer []*x509.Certificate
}

const (
	authorizationHeader = "Authorization"
	impersonatePrefix   = "Impersonate-"
)

// impersonates reports that the request asks for another identity. Upstream knows four such
// headers; whatever begins like them counts here, since a request too many that passes through does
// no harm.
func (r AuthnRequest) impersonates() bool {
	for name := range r.Header {
		if hasPrefixFold(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

// bearer is the token of the request's Authorization header, as kube-apiserver reads it: the scheme
// in any case, and the token up to the next blank. Headers that come twice prove nothing: upstream
// reads the first, and a proxy before it may read the last.
func (r AuthnRequest) bearer() (Secret, bool) {
	values := r.Header[authorizationHeader]
	if len(values) != 1 {
		return Secret{}, false
	}
	parts := strings.SplitN(strings.TrimSpace(values[0]), " ", 3)
	if len(parts) < 2 || strings.ToLower(parts[0]) != "bearer" || parts[1] == "" {
		return Secret{}, false
	}
	return NewSecret(parts[1]), true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
