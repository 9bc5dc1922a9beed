package files

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ServingIdentity is the certificate that the proxy presents to the containers of its pod, and the
// authority by which they verify it. The authority can sign nothing else, because its key is
// dropped when the identity is made.
type ServingIdentity struct {
	Certificate tls.Certificate
	Authority   []byte // PEM
}

// certificateLifetime is longer than any pod's, because clients read an authority once, at their
// start.
const certificateLifetime = 10 * 365 * 24 * time.Hour

// identityFile holds the key, the certificate and the authority's in one file, so that they always
// belong together.
const identityFile = "identity.pem"

// KeepIdentity returns the identity in dir, or makes one and writes it there, so that clients trust
// a proxy that is restarted. If dir is empty, the identity is in memory alone. Only the proxy
// should have access to dir, which is best a volume in memory.
func KeepIdentity(dir string, now time.Time) (*ServingIdentity, error) {
	if dir == "" {
		return newIdentity(now)
	}
	name := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(name) // #nosec G304 -- the operator names it
	if err == nil {
		if kept, err := readIdentity(text, now); err == nil {
			return kept, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	made, err := newIdentity(now)
	if err != nil {
		return nil, err
	}
	if text, err = made.encode(); err != nil {
		return nil, err
	}
	return made, replaceFile(name, text, 0o600)
}

func newIdentity(now time.Time) (*ServingIdentity, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "spillway sidecar CA"},
		IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
		// It vouches for this pod's loopback and for nothing else, for any client that trusts it.
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{{IP: loopback[0], Mask: net.CIDRMask(32, 32)},
			{IP: loopback[1], Mask: net.CIDRMask(128, 128)}},
	}
	der, err := signCertificate(authority, authority, authorityKey.Public(), authorityKey, now)
	if err != nil {
		return nil, err
	}
	if authority, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "spillway sidecar"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: loopback,
	}
	if der, err = signCertificate(leaf, authority, key.Public(), authorityKey, now); err != nil {
		return nil, err
	}
	return &ServingIdentity{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}),
	}, nil
}

// maxSerialNumber is so large that no two certificates are likely to have one number.
var maxSerialNumber = new(big.Int).Lsh(big.NewInt(1), 120)

func signCertificate(certificate, parent *x509.Certificate, key crypto.PublicKey, parentKey crypto.Signer,
	now time.Time) (der []byte, err error) {
	certificate.NotBefore, certificate.NotAfter = now.Add(-time.Hour), now.Add(certificateLifetime)
	if certificate.SerialNumber, err = rand.Int(rand.Reader, maxSerialNumber); err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, certificate, parent, key, parentKey)
}

func (i *ServingIdentity) encode() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(i.Certificate.PrivateKey)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, block := range []*pem.Block{{Type: "PRIVATE KEY", Bytes: key},
		{Type: "CERTIFICATE", Bytes: i.Certificate.Certificate[0]}} {
		if err := pem.Encode(&text, block); err != nil {
			return nil, err
		}
	}
	text.Write(i.Authority)
	return text.Bytes(), nil
}

// readIdentity reads what encode made. It fails if the parts do not belong together, or if less
// than half of the lifetime is left.
func readIdentity(text []byte, now time.Time) (*ServingIdentity, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	if len(pair.Certificate) != 2 {
		return nil, fmt.Errorf("there are %d certificates instead of 2", len(pair.Certificate))
	}
	authority, err := x509.ParseCertificate(pair.Certificate[1])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	if _, err := pair.Leaf.Verify(
		x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", CurrentTime: now.Add(certificateLifetime / 2)}); err != nil {
		return nil, err
	}
	pair.Certificate = pair.Certificate[:1]
	return &ServingIdentity{Certificate: pair,
		Authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})}, nil
}
