package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates. Its methods fail the test if they cannot.
type CA struct {
	t          testing.TB
	Cert       *x509.Certificate
	key        *ecdsa.PrivateKey
	lastSerial int64 // of what it has signed
}

// NewCA returns an authority that is good for a day.
func NewCA(t testing.TB, name string, now time.Time) *CA {
	t.Helper()
	c := &CA{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: c.nextSerial(), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.Cert = c.sign(template, template, c.key, c.key)
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (c *CA) sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	c.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return cert
}

// nextSerial is the serial number of the next certificate that the authority signs.
func (c *CA) nextSerial() *big.Int {
	c.lastSerial++
	return big.NewInt(c.lastSerial)
}

// Intermediate signs another authority, which is good for as long as its issuer.
func (c *CA) Intermediate(name string) *CA {
	c.t.Helper()
	middle := &CA{t: c.t, key: newKey(c.t)}
	middle.Cert = c.sign(&x509.Certificate{
		SerialNumber: c.nextSerial(), Subject: pkix.Name{CommonName: name}, NotBefore: c.Cert.NotBefore,
		NotAfter: c.Cert.NotAfter, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, c.Cert, middle.key, c.key)
	return middle
}

// Issue signs a client certificate that is good until a time; change edits the template. It keeps
// no private key, so that the certificate cannot be used in a handshake.
func (c *CA) Issue(subject pkix.Name, until time.Time, change ...func(*x509.Certificate)) *x509.Certificate {
	c.t.Helper()
	template := &x509.Certificate{
		SerialNumber: c.nextSerial(), Subject: subject, NotBefore: c.Cert.NotBefore, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	return c.sign(template, c.Cert, newKey(c.t), c.key)
}

// PEM is certificates as a file has them, in this order.
func PEM(certs ...*x509.Certificate) []byte {
	var raw []byte
	for _, c := range certs {
		raw = append(raw, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return raw
}

// WriteCAFile writes a file of authorities in a folder of the test's own, and returns its path.
func WriteCAFile(t testing.TB, raw []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
