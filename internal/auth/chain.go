package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"time"

	"spillway/internal/tlsconn"
)

// Chain is the certificates that a client sent, its own first, and their digest. The zero Chain is
// that of a client without a certificate. Immutable.
type Chain struct {
	certificates []*x509.Certificate
	digest       Digest
}

// sameNameLimit is how many of those that may stand between have one name, as where an authority is
// signed by two others. x509 tries all ways through certificates of equal names.
const sameNameLimit = 2

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

// check reports why a chain is not verified at all.
func (c Chain) check() error {
	if n := len(c.certificates); n > tlsconn.CertificatesLimit {
		return fmt.Errorf("the client sent %d certificates: send at most %d", n, tlsconn.CertificatesLimit)
	}
	between := c.certificates[1:]
	for i, one := range between {
		same := 0
		for _, other := range between[i:] {
			if bytes.Equal(one.RawSubject, other.RawSubject) {
				same++
			}
		}
		if same > sameNameLimit {
			return fmt.Errorf("the client sent more than %d authorities of one name: send those alone that lead from its "+
				"certificate to its root", sameNameLimit)
		}
	}
	return nil
}

// verify reports why the first certificate is not vouched for by roots, for a client, at a moment.
func (c Chain) verify(roots *x509.CertPool, at time.Time) error {
	opts := x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(c.certificates) > 1 {
		opts.Intermediates = x509.NewCertPool()
		for _, between := range c.certificates[1:] {
			opts.Intermediates.AddCert(between)
		}
	}
	_, err := c.leaf().Verify(opts)
	return err
}
