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

// ParseAuthorities reads the certificates of a PEM file and skips its other blocks. It returns the
// time at which the last certificate expires, because a file in rotation holds old ones, too. It is
// an error if there is no certificate, or if the last is cut off: the file is being written.
func ParseAuthorities(text []byte) (*Authorities, time.Time, error) {
	return parseAuthorities(text, false)
}

// ParseRoots is ParseAuthorities, but skips certificates that it cannot parse, as x509.CertPool
// does.
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
