package auth

import (
	"crypto/x509"
	"time"
)

// Credential is what a request proved its identity by. It outlives its request only where a watch goes on under it, and then in the
// Reauthorizer, not in the connection: the next request on that is authenticated by what it brings itself.
//
// A token is kept as such, since only the token itself can be reviewed again, which is how it is known that a service account or the pod
// that a token is bound to is gone. Immutable.
type Credential struct {
	key   digest // equal for equal credentials
	token secret // empty: by certificate

	// By certificate.
	peer  []*x509.Certificate
	front bool      // it is a front proxy's, which vouches for somebody else
	who   *Identity // whom the certificate, or the front proxy, says

	// expires is when the credential ends by its own words; zero: it does not say. A certificate's is final. A token's is when upstream
	// had better be asked again: it has been read, not verified, and upstream grants some tokens a minute more.
	expires time.Time
}

// Certified reports that the proof was a certificate, which nobody else can be shown.
func (c *Credential) Certified() bool { return c.token.empty() }
