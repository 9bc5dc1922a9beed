package rbac

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/auth"
	"spillway/internal/auth/reauth/reauthtest"
	"spillway/internal/object"
)

// crowd is a cluster's roles and bindings: a role in each of many namespaces, bound to a service
// account there.
func crowd(b *testing.B, clock *clocktesting.FakeClock, namespaces int) *LocalAuthorizer {
	b.Helper()
	r := NewLocalAuthorizer(LocalAuthorizerOptions{RBAC: true, Clock: clock, Random: func() float64 { return 1 }})
	fill := func(t *PermissionTable, make func(i int) string) {
		objects := []*object.Object{}
		for i := range namespaces {
			o, err := t.Resource().Parse([]byte(make(i)))
			if err != nil {
				b.Fatal(err)
			}
			objects = append(objects, o)
		}
		if err := t.Replace(objects, 1); err != nil {
			b.Fatal(err)
		}
	}
	const meta = `{"kind":"X","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"robot",` +
		`"namespace":"ns-%d","uid":"5a7c1b0e-0000-4000-8000-%012d","resourceVersion":"1"},`
	fill(r.roles, func(i int) string {
		return fmt.Sprintf(meta, i, i) +
			`"rules":[{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["pods","configmaps"]},` +
			`{"verbs":["*"],"apiGroups":["apps"],"resources":["deployments"]}]}`
	})
	fill(r.roleBindings, func(i int) string {
		return fmt.Sprintf(meta, i, i) +
			`"subjects":[{"kind":"ServiceAccount","name":"robot"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io",` +
			`"kind":"Role","name":"robot"}}`
	})
	fill(r.accounts, func(i int) string { return strings.TrimSuffix(fmt.Sprintf(meta, i, i), ",") + "}" })
	for _, t := range r.rbacTables() {
		t.isWhole, t.proven = true, clock.Now()
	}
	return r
}

// What a question costs that is answered by roles, and what those of 10,000 namespaces cost to
// keep.
func BenchmarkLocalRBAC(b *testing.B) {
	const namespaces = 10_000
	clock := clocktesting.NewFakeClock(time.Now())
	before := inUse()
	r := crowd(b, clock, namespaces)
	kept := inUse() - before
	a := auth.NewAuthorizer(auth.AuthorizerOptions{Local: r, Clock: clock})
	who := reauthtest.Named("system:serviceaccount:ns-77:robot", "system:serviceaccounts", "system:serviceaccounts:ns-77")
	what := reauthtest.Wants(b, "/api/v1/namespaces/ns-77/pods?watch=1&labelSelector=a%3Db")
	b.ReportAllocs()
	for b.Loop() {
		if a.Authorize(context.Background(), who, what).Verdict != auth.Allowed {
			b.Fatal("not allowed")
		}
	}
	b.ReportMetric(float64(kept)/namespaces, "B/namespace")
	runtime.KeepAlive(r)
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What a token costs whose signature is verified, and one whose was.
func BenchmarkLocalToken(b *testing.B) {
	for _, bits := range []int{0, 2048} {
		var key crypto.Signer
		var err error
		alg := jose.ES256
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); bits > 0 {
			alg = jose.RS256
			key, err = rsa.GenerateKey(rand.Reader, bits)
		}
		if err != nil {
			b.Fatal(err)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		token := serialize(b, signer, claims(inPod))
		keys := keySet{issuer: testIssuer, keys: map[string]*jose.JSONWebKey{"k1": {Key: key.Public(), KeyID: "k1"}}}
		l := &localTokens{audiences: []string{"api"}}
		b.Run(string(alg), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if l.verify(token, keys) == nil {
					b.Fatal("not taken")
				}
			}
		})
	}
}
