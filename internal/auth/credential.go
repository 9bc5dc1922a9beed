package auth

import (
	"crypto/x509"
	"time"
)

// Credential is what a request proved its identity by. It outlives its request only where a watch
// goes on under it, and then in package auth/reauth, not in the connection: the next request on
// that is authenticated by what it brings itself.
//
// A token is kept as such, since only the token itself can be reviewed again, which is how it is
// known that a service account or the pod that a token is bound to is gone. Immutable.
type Credential struct {
	key   Digest // equal for equal credentials
	token Secret // empty: by certificate

	// By certificate.
	peer  []*x509.Certificate
	front bool      // it is a front proxy's, which vouches for other users
	who   *Identity // that the certificate, or the front proxy, names

	// expires is when the credential ends by its own words; zero: it does not say. A certificate's
	// is final. A token's is when upstream has to be reviewed again: it has been read, not
	// verified, and upstream grants some tokens a minute more.
	expires time.Time
}

// NewCredential is a token, by its digest; without a token it is a certificate that is not shown.
func NewCredential(key Digest, token Secret, expires time.Time) *Credential {
	return &Credential{key: key, token: token, expires: expires}
}

// Key is equal for equal credentials.
func (c *Credential) Key() Digest { return c.key }

// Expires is when the credential ends by its own words; zero: it does not say. For a certificate
// that is final. For a token it is when it has to be reviewed again.
func (c *Credential) Expires() time.Time { return c.expires }

// Certified reports that the proof was a certificate, which can be shown to no other server.
func (c *Credential) Certified() bool { return c.token.empty() }
