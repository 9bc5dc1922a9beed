package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth/authtest"
	"spillway/internal/flowcontrol"
)

// verify is an authority's verdict on a chain.
func verify(a *Authority, now time.Time, peer ...*x509.Certificate) error {
	return a.Verify(context.Background(), flowcontrol.Flow{}, NewChain(peer), now)
}

// pace is an authority whose turns are the test's to hold.
func pace(t *testing.T, ca *authtest.CA, clock *clocktesting.FakeClock) (a *Authority, file string) {
	t.Helper()
	file = authtest.WriteCAFile(t, authtest.PEM(ca.Cert))
	a, err := NewAuthority(file, clock, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	a.turns = flowcontrol.NewGate(flowcontrol.Options{Limit: 1})
	return a, file
}

// A chain is verified once for each state of the authorities and of the clock: what a connection
// sends again needs no turn. A chain without a turn is neither good nor bad.
func TestVerdictsAreRemembered(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	first, second := authtest.NewCA(t, "first", clock.Now()), authtest.NewCA(t, "second", clock.Now())
	a, file := pace(t, first, clock)
	middle := first.Intermediate("middle")
	end := clock.Now().Add(time.Hour)
	good := []*x509.Certificate{middle.Issue(pkix.Name{CommonName: "alice"}, end), middle.Cert}
	bad := []*x509.Certificate{second.Issue(pkix.Name{CommonName: "mallory"}, end)}
	check := func(when string, wantGood, wantBad string) {
		t.Helper()
		for _, c := range []struct {
			chain []*x509.Certificate
			want  string
		}{{good, wantGood}, {bad, wantBad}} {
			got := "good"
			switch err := verify(a, clock.Now(), c.chain...); {
			case errors.Is(err, ErrBusy):
				got = "unknown"
			case err != nil:
				got = "bad"
			}
			if got != c.want {
				t.Errorf("%s: %s is %s, want %s", when, c.chain[0].Subject, got, c.want)
			}
		}
	}
	held := func(when, wantGood, wantBad string) {
		t.Helper()
		pass, _ := a.turns.Try(flowcontrol.Flow{}, 1)
		defer pass.Release()
		check(when, wantGood, wantBad)
	}
	held("at first, without a turn", "unknown", "unknown")
	check("at first", "good", "bad")
	held("again", "good", "bad")

	if err := os.WriteFile(file, authtest.PEM(first.Cert, second.Cert), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.Step(authorityReloadInterval)
	held("after a rotation, without a turn", "unknown", "unknown")
	check("after a rotation", "good", "good")
	held("again after it", "good", "good")

	clock.SetTime(end)
	check("in the last second", "good", "good")
	clock.SetTime(end.Add(time.Nanosecond))
	held("after the end, without a turn", "unknown", "unknown")
	check("after the end", "bad", "bad")
}

// What is remembered of bad chains does not hold their certificates.
func TestBadVerdictsAreShort(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	a, _ := pace(t, authtest.NewCA(t, "first", clock.Now()), clock)
	stranger := authtest.NewCA(t, strings.Repeat("n", 10_000), clock.Now())
	leaf := stranger.Issue(pkix.Name{CommonName: "mallory"}, clock.Now().Add(time.Hour))
	err := verify(a, clock.Now(), leaf, stranger.Cert)
	if err == nil || len(err.Error()) > failureTextBytes {
		t.Fatalf("got %d bytes", len(fmt.Sprint(err)))
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		t.Error("the verdict holds a certificate")
	}
	for range 2 * badVerificationsLimit {
		a.verified.note(a.verified.authorities, Chain{digest: randomDigest()}, clock.Now(), err)
	}
	if n := len(a.verified.bad.entries); n > badVerificationsLimit {
		t.Errorf("%d bad verifications are remembered", n)
	}
}

func randomDigest() (d Digest) {
	_, _ = rand.Read(d[:])
	return d
}

// A stranger's chain is refused, whatever authorities it brings.
func TestChainsAreShort(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	a, _ := pace(t, authtest.NewCA(t, "first", clock.Now()), clock)
	for _, c := range []struct {
		name      string
		issuers   int
		sameNames bool
		want      string
	}{
		{"110 authorities of one name", 110, true, "at most 10"},
		{"9 authorities of one name", 9, true, "unknown authority"},
		{"9 authorities", 9, false, "unknown authority"},
		{"10 authorities", 10, false, "at most 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := verify(a, clock.Now(), hostileChain(t, c.issuers, c.sameNames)...); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Authorities that no known one signed are left out: x509 would check the signatures of all ways
// through them. The others are found in any order, and under several issuers of one name.
func TestOnlySignedAuthoritiesAreFollowed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	root, impostor := authtest.NewCA(t, "root", now), authtest.NewCA(t, "root", now)
	middle, faked := root.Intermediate("middle"), impostor.Intermediate("middle")
	low, below := middle.Intermediate("low"), faked.Intermediate("below")
	leaf := low.Issue(pkix.Name{CommonName: "alice"}, now.Add(time.Hour))
	sent := []*x509.Certificate{below.Cert, low.Cert, faked.Cert, leaf, middle.Cert, impostor.Cert}
	if got, want := signedBy([]*x509.Certificate{root.Cert}, sent),
		[]*x509.Certificate{middle.Cert, low.Cert, leaf}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", names(got), names(want))
	}
	if got := signedBy([]*x509.Certificate{root.Cert}, hostileChain(t, 9, true)); len(got) > 0 {
		t.Errorf("a stranger's are followed: %v", names(got))
	}
	a, _ := pace(t, root, clocktesting.NewFakeClock(now))
	if err := verify(a, now, append([]*x509.Certificate{leaf}, sent...)...); err != nil {
		t.Error(err)
	}
}

func names(certificates []*x509.Certificate) (all []string) {
	for _, c := range certificates {
		all = append(all, c.Subject.CommonName+" by "+c.Issuer.CommonName)
	}
	return all
}

// hostileChain is a leaf, and authorities of its issuer's name or of others, whose keys are as slow
// to verify by as any.
func hostileChain(t *testing.T, issuers int, sameName bool) []*x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(serial int64, name, issuer string) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(1_799_000_000, 0),
			NotAfter: time.Unix(1_900_000_000, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			DNSNames: []string{fmt.Sprint("san-", serial)},
		}
		parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	chain := []*x509.Certificate{issue(0, "mallory", "issuer 1")}
	for i := int64(1); i <= int64(issuers); i++ {
		name, issuer := "issuer 1", "issuer 1"
		if !sameName {
			name, issuer = fmt.Sprint("issuer ", i), fmt.Sprint("issuer ", i+1)
		}
		chain = append(chain, issue(i, name, issuer))
	}
	return chain
}
