package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Authority signs certificates: those of a control plane, its server's and its clients', or others
// that a test wants to have.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// KeyPair is a certificate and its private key, PEM encoded.
type KeyPair struct {
	Cert, Key []byte
}

// lifetime of all certificates: longer than any run, short enough to be of no use to a thief.
const lifetime = 7 * 24 * time.Hour

// NewAuthority makes an authority that no component trusts yet.
func NewAuthority() (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "spillway-test-ca"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cannot read our own certificate authority: %w", err)
	}
	return &Authority{certificate: certificate, key: key, pem: certPEM(der)}, nil
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Key is the authority's private key, PEM encoded.
func (a *Authority) Key() ([]byte, error) { return keyPEM(a.key) }

// IssueServer makes a serving certificate for the loopback addresses, and for other hosts: names or
// addresses.
func (a *Authority) IssueServer(name string, hosts ...string) (KeyPair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return KeyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

// IssueClient makes a certificate by which its owner is user name in the groups given.
func (a *Authority) IssueClient(name string, groups ...string) (KeyPair, error) {
	return a.IssueClientUntil(time.Now().Add(lifetime), name, groups...)
}

// IssueClientUntil makes one that is good until end, which may be over.
func (a *Authority) IssueClientUntil(end time.Time, name string, groups ...string) (KeyPair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name, Organization: groups})
	if err != nil {
		return KeyPair{}, err
	}
	template.NotAfter = end
	template.NotBefore = end.Add(-lifetime - time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// IssueSubject makes a client certificate with any subject.
func (a *Authority) IssueSubject(subject pkix.Name) (KeyPair, error) {
	template, err := newTemplate(subject)
	if err != nil {
		return KeyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (KeyPair, error) {
	key, err := newKey()
	if err != nil {
		return KeyPair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot sign a certificate for %s: %w", template.Subject.CommonName, err)
	}
	keyBytes, err := keyPEM(key)
	return KeyPair{Cert: certPEM(der), Key: keyBytes}, err
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("cannot draw a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-lifetime), // clocks may be behind
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return key, nil
}

// newKeyPEM makes a private key, PEM encoded.
func newKeyPEM() ([]byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return keyPEM(key)
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
