package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth/authtest"
)

// quick is a cluster that takes no time.
func quick() *Reviewer {
	c := authtest.NewCluster()
	c.Users["t"] = "alice"
	c.Latency = func() time.Duration { return 0 }
	return NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, c, zap.NewNop())
}

// What a request costs whose token or certificate, and whose question, are known.
func BenchmarkAuthenticate(b *testing.B) {
	clock := clocktesting.NewFakeClock(time.Now())
	clients := authtest.NewCA(b, "clients", clock.Now())
	authority, err := NewAuthority(authtest.WriteCAFile(b, authtest.PEM(clients.Cert)), clock, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	a := NewAuthenticator(AuthenticatorOptions{Reviewer: quick(), ClientCA: authority, Clock: clock})
	cert := clients.Issue(pkix.Name{CommonName: "alice"}, clock.Now().Add(time.Hour))
	requests := map[string]AuthnRequest{"token": withToken("t"), "certificate": {Peer: []*x509.Certificate{cert}}}
	for name, r := range requests {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a.Authenticate(context.Background(), r).Outcome != Authenticated {
					b.Fatal("not authenticated")
				}
			}
		})
	}
}

func BenchmarkAuthorize(b *testing.B) {
	a := NewAuthorizer(AuthorizerOptions{Reviewer: quick(), Clock: clocktesting.NewFakeClock(time.Now())})
	what := wants(b, "/api/v1/namespaces/c1/pods?watch=1&labelSelector=a%3Db")
	b.ReportAllocs()
	for b.Loop() {
		if a.Authorize(context.Background(), bob, what).Verdict != Allowed {
			b.Fatal("not allowed")
		}
	}
}

func BenchmarkAttributesOf(b *testing.B) {
	for name, target := range map[string]string{
		"GET":   "/api/v1/namespaces/c1/pods/a?resourceVersion=0",
		"LIST":  "/api/v1/namespaces/c1/pods?resourceVersion=0&limit=500",
		"WATCH": "/api/v1/namespaces/c1/pods?watch=1&labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn",
	} {
		path, query, _ := strings.Cut(target, "?")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := AttributesOf("GET", path, query); !ok {
					b.Fatal(target)
				}
			}
		})
	}
}
