package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"slices"
	"time"

	"spillway/internal/rotation"
)

// Chain is the certificates that a client sent, its own first, and their digest. The zero Chain is
// that of a client without a certificate. Immutable.
type Chain struct {
	certificates []*x509.Certificate
	digest       Digest
}

// NewChain is the chain of a client's certificates.
func NewChain(certificates []*x509.Certificate) Chain {
	if len(certificates) == 0 {
		return Chain{}
	}
	c := Chain{certificates: certificates}
	hash := sha256.New()
	var length [8]byte
	for _, one := range certificates {
		binary.BigEndian.PutUint64(length[:], uint64(len(one.Raw)))
		hash.Write(length[:])
		hash.Write(one.Raw)
	}
	hash.Sum(c.digest[:0])
	return c
}

// Empty reports that the client has sent no certificate.
func (c Chain) Empty() bool { return len(c.certificates) == 0 }

// leaf is the client's own certificate. There must be one.
func (c Chain) leaf() *x509.Certificate { return c.certificates[0] }

// verify reports why authorities do not vouch for the first certificate, as a client's, at a
// moment.
//
// x509 tries every way up from the first certificate, and each step is a signature that a stranger
// made by the slowest key. So intermediates are first checked from the authorities downward, and
// x509 gets only those that lead to one. The cost then depends on the authorities' keys.
func (c Chain) verify(authorities *rotation.Authorities, at time.Time) error {
	opts := x509.VerifyOptions{
		Roots: authorities.Pool, Intermediates: x509.NewCertPool(), CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, between := range signedBy(authorities.Certificates, c.certificates[1:]) {
		opts.Intermediates.AddCert(between)
	}
	_, err := c.leaf().Verify(opts)
	return err
}

// signedBy are the certificates that issuers signed, directly or by others of the certificates. A
// certificate is checked once by each issuer that it names.
func signedBy(issuers, certificates []*x509.Certificate) (signed []*x509.Certificate) {
	unsigned := slices.Clone(certificates)
	for len(issuers) > 0 {
		var found []*x509.Certificate
		unsigned = slices.DeleteFunc(unsigned, func(c *x509.Certificate) bool {
			ok := slices.ContainsFunc(issuers, func(issuer *x509.Certificate) bool {
				return bytes.Equal(c.RawIssuer, issuer.RawSubject) && c.CheckSignatureFrom(issuer) == nil
			})
			if ok {
				found = append(found, c)
			}
			return ok
		})
		signed, issuers = append(signed, found...), found
	}
	return signed
}
