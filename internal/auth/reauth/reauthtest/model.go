// Package reauthtest runs a Reauthorizer in tests, between requests and a cluster, in a bubble with
// time of its own. Package reauth's tests and package rbac's share it.
package reauthtest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/reauth"
)

// Bob is a user with everything that an identity has.
var Bob = auth.NewIdentity(authenticationv1.UserInfo{
	Username: "bob", UID: "u-2", Groups: []string{"dev", "system:authenticated"},
	Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a"}},
})

// Named is an identity of this name, in these groups besides that of all authenticated users.
func Named(name string, groups ...string) *auth.Identity {
	return auth.NewIdentity(authenticationv1.UserInfo{Username: name, Groups: groups})
}

// WithToken is a request with a bearer token.
func WithToken(token string) auth.AuthnRequest {
	return auth.AuthnRequest{Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// Wants is what a GET request asks for.
func Wants(t testing.TB, target string) auth.Attributes {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	a, ok := auth.AttributesOf("GET", path, query)
	if !ok {
		t.Fatalf("no authorizer decides about %s", target)
	}
	return a
}

// Live is a watch that notes the calls of its methods. It is safe for concurrent use.
type Live struct {
	mu      sync.Mutex
	held    bool
	end     reauth.End
	calls   []string
	stopped time.Time // when it stopped sending, if it has
}

// Pause implements reauth.ReviewedStream.
func (l *Live) Pause() { l.do("hold", func() { l.held = true }) }

// Resume implements reauth.ReviewedStream.
func (l *Live) Resume() { l.do("resume", func() { l.held = false }) }

// End implements reauth.ReviewedStream.
func (l *Live) End(e reauth.End) { l.do("end "+string(e), func() { l.end = e }) }

func (l *Live) do(what string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ran := !l.held && l.end == ""
	l.calls = append(l.calls, what)
	if f(); ran {
		l.stopped = time.Now()
	}
}

// Runs reports that it is neither held nor ended.
func (l *Live) Runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.held && l.end == ""
}

// Ended is why it ended, and when it stopped sending.
func (l *Live) Ended() (reauth.End, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, l.stopped
}

// Calls are the calls of its methods, in order.
func (l *Live) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// Setup is what a test may change before a Model begins.
type Setup struct {
	Cluster *authtest.Cluster
	Authn   auth.AuthenticatorOptions
	Authz   auth.AuthorizerOptions
	Reauth  reauth.ReauthorizerOptions
}

// Ask has reviews sent through a transport.
func (s *Setup) Ask(through http.RoundTripper) *auth.Reviewer {
	r := auth.NewReviewer(&url.URL{Scheme: "https", Host: "cluster"}, through, zap.NewNop())
	s.Authn.Reviewer, s.Authz.Reviewer = r, r
	return r
}

// Model is everything between clients and a cluster.
type Model struct {
	T       *testing.T
	Cluster *authtest.Cluster
	Authn   *auth.Authenticator
	Authz   *auth.Authorizer
	*reauth.Reauthorizer
	Began time.Time
}

// On runs a test in a bubble, with a Reauthorizer at work.
func On(t *testing.T, change func(*Setup), test func(*Model)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Setup{Cluster: authtest.NewCluster()}
		s.Ask(s.Cluster)
		s.Reauth.Random = rand.New(rand.NewPCG(1, 1)).Float64
		if change != nil {
			change(s)
		}
		p := &Model{T: t, Cluster: s.Cluster, Authn: auth.NewAuthenticator(s.Authn),
			Authz: auth.NewAuthorizer(s.Authz), Began: time.Now()}
		s.Reauth.Authenticator, s.Reauth.Authorizer = p.Authn, p.Authz
		p.Reauthorizer = reauth.NewReauthorizer(s.Reauth)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		test(p)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Know makes a token of a user's good, and returns a request with it.
func (p *Model) Know(user string) auth.AuthnRequest {
	p.Cluster.Change(func() { p.Cluster.Users["token-of-"+user] = user })
	return WithToken("token-of-" + user)
}

// Watch starts a watch of a resource; nil if the request may not have one.
func (p *Model) Watch(r auth.AuthnRequest, resource string) (*Live, *reauth.Lease) {
	p.T.Helper()
	result := p.Authn.Authenticate(context.Background(), r)
	if result.Outcome != auth.Authenticated {
		return nil, nil
	}
	what := Wants(p.T, "/api/v1/"+resource+"?watch=1")
	decision := p.Authz.Authorize(context.Background(), result.Identity, what)
	if decision.Verdict != auth.Allowed {
		return nil, nil
	}
	l := &Live{}
	return l, p.Admit(result, what, decision, l)
}

// Expect checks how a watch stands.
func (p *Model) Expect(l *Live, running bool, end reauth.End) {
	p.T.Helper()
	synctest.Wait()
	if got, _ := l.Ended(); l.Runs() != running || got != end {
		p.T.Errorf("after %v: runs %v, ended %q; want %v, %q", time.Since(p.Began), l.Runs(), got, running, end)
	}
}
