package main

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
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
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

// later makes a file look changed, however coarse the file system's clock is.
func later(t *testing.T, d time.Duration, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
	}
}

// presented is the leaf that a client would be shown, as if a while had passed since the last look at the files.
func presented(t *testing.T, c *certificate) []byte {
	t.Helper()
	c.mu.Lock()
	c.checked = time.Time{}
	c.mu.Unlock()
	pair, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Certificate[0]
}

func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	core, logs := observer.New(zap.InfoLevel)
	c := &certificate{certFile: certFile, keyFile: keyFile, log: zap.New(core)}
	if _, err := c.get(nil); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Fatalf("no files: %v", err)
	}
	first := pairFiles(t, certFile, keyFile)
	if got := presented(t, c); !bytes.Equal(got, first) {
		t.Error("not the first pair")
	}
	second := pairFiles(t, certFile, keyFile)
	later(t, time.Minute, certFile, keyFile)
	c.mu.Lock()
	c.checked = time.Now().Add(time.Hour) // just now, however long this takes
	c.mu.Unlock()
	if pair, err := c.get(nil); err != nil || !bytes.Equal(pair.Certificate[0], first) {
		t.Error("files are looked at on every handshake")
	}
	if got := presented(t, c); !bytes.Equal(got, second) {
		t.Error("not the second pair")
	}
	if logs.FilterMessage("TLS certificate reloaded").Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
	// In the middle of a rotation: a certificate that does not fit the key, then nothing at all.
	pairFiles(t, certFile, filepath.Join(dir, "other.key"))
	later(t, 2*time.Minute, certFile)
	if got := presented(t, c); !bytes.Equal(got, second) {
		t.Error("the pair in use was given up for one that does not fit")
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if got := presented(t, c); !bytes.Equal(got, second) {
		t.Error("the pair in use was given up for nothing")
	}
	if logs.FilterMessageSnippet("keeping the certificate in use").Len() != 2 {
		t.Errorf("logged %v", logs.All())
	}
	third := pairFiles(t, certFile, keyFile)
	later(t, 3*time.Minute, certFile, keyFile)
	if got := presented(t, c); !bytes.Equal(got, third) {
		t.Error("not the third pair")
	}
}

// The kubelet renews a mounted secret by turning one symbolic link.
func TestCertificateBehindALink(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	first := pairFiles(t, filepath.Join(dir, "v1", "tls.crt"), filepath.Join(dir, "v1", "tls.key"))
	second := pairFiles(t, filepath.Join(dir, "v2", "tls.crt"), filepath.Join(dir, "v2", "tls.key"))
	later(t, time.Minute, filepath.Join(dir, "v2", "tls.crt"), filepath.Join(dir, "v2", "tls.key"))
	point := func(version string) {
		t.Helper()
		fresh := filepath.Join(dir, "fresh")
		if err := os.Symlink(version, fresh); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	point("v1")
	c := &certificate{certFile: filepath.Join(dir, "data", "tls.crt"), keyFile: filepath.Join(dir, "data", "tls.key"), log: zap.NewNop()}
	if got := presented(t, c); !bytes.Equal(got, first) {
		t.Error("not the first pair")
	}
	point("v2")
	if got := presented(t, c); !bytes.Equal(got, second) {
		t.Error("not the second pair")
	}
}

// Without files a certificate is made up that fits the machine it is made on.
func TestSelfSignedCertificate(t *testing.T) {
	config, err := tlsConfig(newOptions(), nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
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
		o := newOptions()
		o.http2 = http2
		if config, err = tlsConfig(o, nil, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if got := negotiated(t, config, "http/1.1", "h2"); got != want {
			t.Errorf("with --http2=%t it speaks %q", http2, got)
		}
		if got := negotiated(t, config, "http/1.1"); got != "http/1.1" { // as for upgrades
			t.Errorf("with --http2=%t, to those who do not know better, it speaks %q", http2, got)
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
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}) //nolint:gosec // a certificate that was just made up
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return client.ConnectionState().NegotiatedProtocol
}
