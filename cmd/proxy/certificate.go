package main

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

	"spillway/internal/auth"
	"spillway/internal/rotation"
)

// tlsConfig is what listeners with TLS present: the sidecar's pair, the configured one, or a self-signed one that lives in memory.
func tlsConfig(o *options, pod *podFiles, followed *files, log *zap.Logger) (*tls.Config, error) {
	// One record size from the first byte on: small first records would split events.
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true}
	if o.http2 {
		config.NextProtos = []string{"h2", "http/1.1"} // W-1
	}
	if pod != nil {
		config.Certificates = []tls.Certificate{pod.identity.Certificate}
		return config, nil
	}
	if o.tlsCertFile == "" {
		pair, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("making a self-signed certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
		return config, nil
	}
	c, err := readCertificate(o.tlsCertFile, o.tlsPrivateKeyFile, log)
	if err != nil {
		return nil, err
	}
	followed.add(c.files.States)
	config.GetCertificate = c.get
	return config, nil
}

// askForCertificates has a listener ask its clients for certificates, if there are any that would do. It verifies none: whether one is good
// is found out per request, when it may have ended or its authority may have gone.
func askForCertificates(config *tls.Config, a *auth.Authenticator) {
	if a.Certificates() == nil {
		return
	}
	config.ClientAuth = tls.RequestClientCert
	listener := config.Clone() // without this hook, or each connection's would ask for another
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := listener.Clone()
		now.ClientCAs = a.Certificates() // as the files are by now
		return now, nil
	}
}

// speaking is config for a listener of these protocols alone, also where a hook gives each
// connection a configuration of its own: the hook's would offer what the server does not speak.
func speaking(config *tls.Config, protocols ...string) *tls.Config {
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

// certificate is a key pair that is read again when its files change. A pair that cannot be read, as in the middle of a
// rotation, leaves the one in use.
type certificate struct {
	files *rotation.Value[*tls.Certificate]
}

// readCertificate reads it for the first time.
func readCertificate(certFile, keyFile string, log *zap.Logger) (*certificate, error) {
	files, err := rotation.New(rotation.Options[*tls.Certificate]{
		Use: "TLS certificate", Read: rotation.Files(certFile, keyFile), Log: log,
		Parse: func(parts []rotation.Part) (*tls.Certificate, time.Time, error) {
			return rotation.ParsePair(parts[0].Text, parts[1].Text)
		},
	})
	if err != nil {
		return nil, err
	}
	return &certificate{files: files}, nil
}

// checkEvery bounds how often the files are looked at.
const checkEvery = time.Second

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.files.Recent(checkEvery), nil
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
