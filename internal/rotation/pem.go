package rotation

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"
)

// Authorities are the certificates that vouch for others.
type Authorities struct {
	Pool         *x509.CertPool
	Certificates []*x509.Certificate
}

var (
	errNoCertificate = errors.New("there is no certificate in it")
	errCutOff        = errors.New("its last certificate is cut off")
)

// ParseAuthorities reads PEM certificates, of which there must be one. Other blocks do not matter.
// A certificate whose end is missing is an error: the file is being written. The authorities end
// when the last certificate does, because a file that is about to be rotated holds old ones, too.
func ParseAuthorities(text []byte) (*Authorities, time.Time, error) {
	return parseAuthorities(text, false)
}

// ParseRoots is ParseAuthorities that leaves out certificates that cannot be read. So x509.CertPool
// reads a bundle, and with it every client of an API server.
func ParseRoots(text []byte) (*Authorities, time.Time, error) {
	return parseAuthorities(text, true)
}

func parseAuthorities(text []byte, isLenient bool) (a *Authorities, expires time.Time, err error) {
	a = &Authorities{Pool: x509.NewCertPool()}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		parsed, err := x509.ParseCertificates(block.Bytes)
		if err != nil && !isLenient {
			return nil, time.Time{}, err
		}
		for _, c := range parsed {
			a.Pool.AddCert(c)
			if c.NotAfter.After(expires) {
				expires = c.NotAfter
			}
		}
		a.Certificates = append(a.Certificates, parsed...)
	}
	switch {
	case len(a.Certificates) == 0:
		return nil, time.Time{}, errNoCertificate
	case bytes.Contains(text, []byte("-----BEGIN CERTIFICATE")):
		return nil, time.Time{}, errCutOff
	}
	return a, expires, nil
}

// ParsePair reads a PEM certificate chain and its private key, which must fit. It ends when its
// first certificate does.
func ParsePair(certificate, key []byte) (*tls.Certificate, time.Time, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, time.Time{}, err
	}
	if pair.Leaf == nil { // see GODEBUG=x509keypairleaf
		return &pair, time.Time{}, nil
	}
	return &pair, pair.Leaf.NotAfter, nil
}
