package files

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func identity(t *testing.T, dir string, now time.Time) *ServingIdentity {
	t.Helper()
	i, err := KeepIdentity(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// authority is the certificate that clients trust.
func authority(t *testing.T, i *ServingIdentity) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(i.Authority)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one certificate: %s", i.Authority)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A client that trusts the authority trusts the proxy on loopback, for as long as any pod lives,
// and no other name or address.
func TestIdentityIsTrusted(t *testing.T) {
	now := time.Now()
	i := identity(t, "", now)
	leaf, err := x509.ParseCertificate(i.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority(t, i))
	for name, ok := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "10.0.0.1": false,
		"kubernetes.default.svc": false} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.AddDate(9, 0, 0)})
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	ca := authority(t, i)
	if !ca.IsCA || !ca.MaxPathLenZero || len(ca.PermittedIPRanges) != 2 || !ca.PermittedDNSDomainsCritical {
		t.Errorf("it vouches for more than this: %v %v", ca.PermittedIPRanges, ca.PermittedDNSDomains)
	}
	if other := identity(t, "", now); bytes.Equal(other.Authority, i.Authority) {
		t.Error("two of them share an authority")
	}
}

// The same identity is there after a restart. Only the proxy's key is kept: it cannot
// sign for the authority.
func TestIdentityIsKept(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := identity(t, dir, now)
	again := identity(t, dir, now.AddDate(4, 0, 0))
	if !bytes.Equal(again.Authority, first.Authority) ||
		!bytes.Equal(again.Certificate.Certificate[0], first.Certificate.Certificate[0]) ||
		!again.Certificate.PrivateKey.(*ecdsa.PrivateKey).Equal(first.Certificate.PrivateKey) ||
		len(again.Certificate.Certificate) != 1 {
		t.Error("another identity after a restart")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	name := filepath.Join(dir, entries[0].Name())
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	keys := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if !strings.Contains(block.Type, "KEY") {
			continue
		}
		keys++
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil || authority(t, first).PublicKey.(*ecdsa.PublicKey).Equal(key.(*ecdsa.PrivateKey).Public()) {
			t.Error("the key of the authority was written", err)
		}
	}
	if keys != 1 {
		t.Errorf("%d keys", keys)
	}
}

// What cannot be used, or not for long any more, is replaced.
func TestIdentityIsReplaced(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := identity(t, dir, now)
	if old := identity(t, dir, now.AddDate(6, 0, 0)); bytes.Equal(old.Authority, first.Authority) {
		t.Error("one is kept that is about to end")
	}
	name := filepath.Join(dir, identityFile)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	other, err := identity(t, "", now).encode()
	if err != nil {
		t.Fatal(err)
	}
	_, certificates, _ := bytes.Cut(other, []byte("-----END PRIVATE KEY-----\n"))
	key, rest, _ := bytes.Cut(whole, []byte("-----BEGIN CERTIFICATE-----"))
	for what, text := range map[string][]byte{
		"nothing": nil, "half": whole[:len(whole)/2], "another key": append(bytes.Clone(key), certificates...),
		"no authority": append(append(key, "-----BEGIN CERTIFICATE-----"...),
			bytes.SplitAfter(rest, []byte("-----END CERTIFICATE-----\n"))[0]...),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		made := identity(t, dir, now)
		if kept := identity(t, dir, now); !bytes.Equal(kept.Authority, made.Authority) {
			t.Errorf("%s: not replaced", what)
		}
	}
	if _, err := KeepIdentity(filepath.Join(dir, "none"), now); err == nil ||
		!strings.HasSuffix(Cause(err), ": no such file or directory") {
		t.Errorf("no folder: %v", err)
	}
}
