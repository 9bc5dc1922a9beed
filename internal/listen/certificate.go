package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"go.uber.org/zap"

	"spillway/internal/rotation"
	"spillway/internal/tlsconn"
)

// TLS says how listeners with TLS are served.
type TLS struct {
	HTTP2 bool // is offered
	// Pair is presented instead of the files, such as the certificate of a sidecar; nil: the files
	// are.
	Pair *tls.Certificate
	// CertFile and KeyFile are read again when they change. Empty: a self-signed certificate that
	// exists in memory only.
	CertFile, KeyFile string
	Log               *zap.Logger
}

// Config makes the configuration, with which any number of listeners may be served. states reports
// the files that it follows; nil: it follows none.
func (t TLS) Config() (config *tls.Config, states func() []rotation.FileState, err error) {
	// One record size from the first byte on: small first records would split events.
	config = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true,
	}
	if t.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"} // W-1
	}
	switch {
	case t.Pair != nil:
		config.Certificates = []tls.Certificate{*t.Pair}
	case t.CertFile == "":
		pair, err := selfSigned(time.Now())
		if err != nil {
			return nil, nil, fmt.Errorf("making a self-signed certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	default:
		c, err := ReadCertificate(t.CertFile, t.KeyFile, t.Log)
		if err != nil {
			return nil, nil, err
		}
		config.GetCertificate, states = c.Get, c.States
	}
	return config, states, nil
}

// RequestCertificates has a listener request certificates of its clients, signed by authorities, if
// there are any at present. It verifies none: each request is judged by itself, because a
// certificate may end, and its authority may go, while its connection stays.
func RequestCertificates(config *tls.Config, authorities func() *x509.CertPool) {
	if authorities() == nil {
		return
	}
	config.ClientAuth, config.VerifyConnection = tls.RequestClientCert, tlsconn.CheckCertificates
	listener := config.Clone() // without the hook below, which each connection would otherwise call again
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := listener.Clone()
		now.ClientCAs = authorities() // as the files are by now
		return now, nil
	}
}

// Speaking is config for a listener of these protocols alone. That includes the configurations that
// a hook makes for each connection: they would offer what the server does not speak.
func Speaking(config *tls.Config, protocols ...string) *tls.Config {
	config = config.Clone()
	config.NextProtos = protocols
	if hook := config.GetConfigForClient; hook != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			fresh, err := hook(hello)
			if err != nil || fresh == nil {
				return fresh, err
			}
			fresh = fresh.Clone()
			fresh.NextProtos = protocols
			return fresh, nil
		}
	}
	return config
}

// Certificate is a key pair that is read again when its files change. A pair that cannot be read,
// as in the middle of a rotation, leaves the one in use.
type Certificate struct {
	files *rotation.Value[*tls.Certificate]
}

// ReadCertificate makes a Certificate, and reads it for the first time.
func ReadCertificate(certFile, keyFile string, log *zap.Logger) (*Certificate, error) {
	files, err := rotation.New(rotation.Options[*tls.Certificate]{
		Use: "TLS certificate", Read: rotation.Files(certFile, keyFile), Log: log,
		Parse: func(parts []rotation.Part) (*tls.Certificate, time.Time, error) {
			return rotation.ParsePair(parts[0].Text, parts[1].Text)
		},
	})
	if err != nil {
		return nil, err
	}
	return &Certificate{files: files}, nil
}

// certificateInterval bounds how often the files are looked at.
const certificateInterval = time.Second

// Get implements tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.files.Recent(certificateInterval), nil
}

// States describes the files as they are now, also while no client connects.
func (c *Certificate) States() []rotation.FileState {
	c.files.Recent(certificateInterval)
	return c.files.States()
}

// selfSigned makes a certificate for this host's names that is valid for a year from now.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "spillway"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "spillway"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
