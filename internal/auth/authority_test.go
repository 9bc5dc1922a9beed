package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth/authtest"
)

// A file that is rotated counts a second later; one that cannot be read leaves the one before, and
// the log says so once for each reason.
func TestAuthorityReloads(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	first, second := authtest.NewCA(t, "first", clock.Now()), authtest.NewCA(t, "second", clock.Now())
	name := authtest.WriteCAFile(t, authtest.PEM(first.Cert))
	core, logs := observer.New(zap.InfoLevel)
	a, err := NewAuthority(name, clock, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	alice := pkix.Name{CommonName: "alice"}
	old, fresh := first.Issue(alice, clock.Now().Add(time.Hour)), second.Issue(alice, clock.Now().Add(time.Hour))
	check := func(wantOld, wantFresh bool, wantLines int) {
		t.Helper()
		for _, c := range []struct {
			cert *x509.Certificate
			want bool
		}{{old, wantOld}, {fresh, wantFresh}} {
			if err := verify(a, clock.Now(), c.cert); (err == nil) != c.want {
				t.Errorf("signed by %s: %v, want good: %v", c.cert.Issuer, err, c.want)
			}
		}
		if logs.Len() != wantLines {
			t.Errorf("%d log lines, want %d: %v", logs.Len(), wantLines, logs.All())
		}
	}
	replace := func(raw []byte) {
		t.Helper()
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		clock.Step(authorityReloadInterval)
	}
	check(true, false, 0)
	replace(append([]byte("both, while clients change\n"), authtest.PEM(first.Cert, second.Cert)...))
	check(true, true, 1)
	replace([]byte("half a file"))
	check(true, true, 2)
	clock.Step(authorityReloadInterval)
	check(true, true, 2)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	clock.Step(authorityReloadInterval)
	check(true, true, 3)
	replace(authtest.PEM(second.Cert))
	check(false, true, 4)
	if certs := a.current(); len(certs) != 1 || certs[0].Subject.CommonName != "second" {
		t.Errorf("got %v", certs)
	}
}

// The states tell of a file that is broken while no client is verified, too.
func TestAuthorityStatesAreThoseOfNow(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	name := authtest.WriteCAFile(t, authtest.PEM(authtest.NewCA(t, "first", clock.Now()).Cert))
	a, err := NewAuthority(name, clock, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.Step(authorityReloadInterval)
	if states := a.States(); len(states) != 1 || states[0].Err == nil {
		t.Errorf("a broken file has the states %v", states)
	}
}

func TestNewAuthorityRefuses(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	for _, c := range []struct{ raw, want string }{
		{"", "no certificate in it"},
		{"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "malformed"},
		{"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no certificate in it"},
	} {
		if _, err := NewAuthority(authtest.WriteCAFile(t, []byte(c.raw)), clock, zap.NewNop()); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.raw, err, c.want)
		}
	}
	if _, err := NewAuthority("/does/not/exist", clock, zap.NewNop()); err == nil {
		t.Error("a file that is not there is taken")
	}
}
