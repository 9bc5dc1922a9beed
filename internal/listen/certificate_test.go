package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// pairFiles writes a new key pair and returns its leaf.
func pairFiles(t *testing.T, certFile, keyFile string) []byte {
	t.Helper()
	pair, err := selfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair.Certificate[0]
}

// A listener presents the pair that is in its files, however many handshakes there are, and the one
// before while they do not fit.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := ReadCertificate(certFile, keyFile, zap.NewNop()); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Fatalf("no files: %v", err)
	}
	first := pairFiles(t, certFile, keyFile)
	c, err := ReadCertificate(certFile, keyFile, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	presented := func() []byte {
		t.Helper()
		c.files.Look() // as if a second had passed
		pair, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	if !bytes.Equal(presented(), first) {
		t.Error("not the first pair")
	}
	second := pairFiles(t, certFile, keyFile)
	if !bytes.Equal(presented(), second) {
		t.Error("not the second pair")
	}
	pairFiles(t, certFile, filepath.Join(dir, "other.key"))
	if !bytes.Equal(presented(), second) {
		t.Error("the pair in use was given up for one that does not fit")
	}
	for _, s := range c.files.States() {
		if s.Err == nil || !strings.Contains(s.Err.Error(), keyFile) || s.Changes != 1 || s.Expires.IsZero() {
			t.Errorf("it is said to stand like this: %+v", s)
		}
	}
}

// Without files a certificate is made up that fits the machine it is made on.
// The states tell of a file that is broken while no client connects, too.
func TestCertificateStatesAreThoseOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		pairFiles(t, certFile, keyFile)
		_, states, err := (&TLS{CertFile: certFile, KeyFile: keyFile, Log: zap.NewNop()}).Config()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateInterval)
		for _, s := range states() {
			if s.Err == nil {
				t.Errorf("%s is broken, and no state says so", s.File)
			}
		}
	})
}

func TestSelfSignedCertificate(t *testing.T) {
	config, states, err := TLS{HTTP2: true}.Config()
	if err != nil {
		t.Fatal(err)
	}
	if states != nil {
		t.Error("it follows files")
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "spillway", host} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for http2, want := range map[bool]string{true: "h2", false: "http/1.1"} { // W-1
		if config, _, err = (TLS{HTTP2: http2}).Config(); err != nil {
			t.Fatal(err)
		}
		if got := negotiated(t, config, "http/1.1", "h2"); got != want {
			t.Errorf("with HTTP2=%t it speaks %q", http2, got)
		}
		if got := negotiated(t, config, "http/1.1"); got != "http/1.1" { // as for upgrades
			t.Errorf("with HTTP2=%t, to clients without ALPN, it speaks %q", http2, got)
		}
	}
}

// negotiated is the protocol that a client with these gets.
func negotiated(t *testing.T, config *tls.Config, protocols ...string) string {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	server := tls.Server(near, config)
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	client := tls.Client(far,
		&tls.Config{InsecureSkipVerify: true, NextProtos: protocols}) //nolint:gosec // a certificate that was just made up
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client.ConnectionState().NegotiatedProtocol
}
