package auth

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"spillway/internal/fakeapiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API server that answers reviews by a script, and what asks it, at a time of the
// test's own.
type world struct {
	t       *testing.T
	server  *fakeapiserver.Server
	reviews *fakeapiserver.Reviews
	own     *http.Transport
	asks    *Reviewer
	clock   *clocktesting.FakeClock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := fakeapiserver.New(fakeapiserver.Options{})
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, server: s, reviews: s.Reviews(), own: &http.Transport{},
		clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	t.Cleanup(w.own.CloseIdleConnections)
	w.asks = NewReviewer(base, w.own, zap.NewNop())
	return w
}

// ctx ends long after every test should.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// await waits until the API server has seen what cond is about.
func (w *world) await(cond func() bool) {
	w.t.Helper()
	if err := w.server.Await(w.ctx(), cond); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) authenticator(change ...func(*AuthenticatorOptions)) *Authenticator {
	o := AuthenticatorOptions{Reviewer: w.asks, Clock: w.clock}
	for _, f := range change {
		f(&o)
	}
	return NewAuthenticator(o)
}

func (w *world) authorizer(change ...func(*AuthorizerOptions)) *Authorizer {
	o := AuthorizerOptions{Reviewer: w.asks, Clock: w.clock}
	for _, f := range change {
		f(&o)
	}
	return NewAuthorizer(o)
}

// alice is a user as the API server knows her.
var alice = authenticationv1.UserInfo{
	Username: "alice", UID: "u-1", Groups: []string{"dev", "system:authenticated"},
	Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"a", "b"}},
}

// withToken is a request with a bearer token.
func withToken(token string) AuthnRequest {
	return AuthnRequest{Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// allowed is the answer of an authorizer that allows.
func allowed(authorizationv1.SubjectAccessReviewSpec) bool { return true }
