package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"

	"spillway/internal/auth/authtest"
)

// seen describes a result: the outcome and, if there is one, the identity.
func seen(r Result) string {
	if r.Identity == nil {
		return string(r.Outcome)
	}
	return string(r.Outcome) + " " + r.Identity.name + " " + strings.Join(r.Identity.groups, ",")
}

// Tokens are the API server's to judge; what it says is remembered, good for ten seconds and bad
// for one.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator()
	check := func(token, want string, wantReviews int) {
		t.Helper()
		r := a.Authenticate(w.ctx(), withToken(token))
		if got := seen(r); got != want {
			t.Errorf("%s: got %q, want %q (%v)", token, got, want, r.Err)
		}
		if n := len(w.reviews.Tokens()); n != wantReviews {
			t.Errorf("%s: %d reviews, want %d", token, n, wantReviews)
		}
	}
	const good = "success alice dev,system:authenticated"
	w.reviews.Know("t1", alice)
	check("t1", good, 1)
	w.reviews.Forget("t1")
	w.clock.Step(AnswerTTL - 1)
	check("t1", good, 1)
	w.clock.Step(1)
	check("t1", "failure", 2)
	w.reviews.Know("t1", alice)
	w.clock.Step(FailureTTL - 1)
	check("t1", "failure", 2)
	w.clock.Step(1)
	check("t1", good, 3)
	check("t2", "failure", 4)

	r := a.Authenticate(w.ctx(), withToken("t1"))
	want := &Identity{name: "alice", uid: "u-1", groups: alice.Groups,
		extra: map[string][]string{"example.com/team": {"a", "b"}}}
	if !reflect.DeepEqual(r.Identity, want) {
		t.Errorf("got %+v, want %+v", r.Identity, want)
	}
	for _, token := range []string{"anonymous", "nameless"} {
		w.reviews.Know(token, authenticationv1.UserInfo{Username: map[string]string{"anonymous": "system:anonymous"}[token]})
		if r := a.Authenticate(w.ctx(), withToken(token)); r.Outcome != Refused || !errors.Is(r.Err, errNameless) {
			t.Errorf("%s: got %q, %v", token, seen(r), r.Err)
		}
	}
}

// The answer about a token is cached no longer than until the expiry that the token itself states:
// the API server reviews the token again at that moment, and each second after it.
func TestTokenEnds(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator()
	token := authtest.JWT(`{"exp":1800000004}`)
	w.reviews.Know(token, alice)
	for i, c := range []struct {
		step    time.Duration
		reviews int
	}{{0, 1}, {3999 * time.Millisecond, 1}, {time.Millisecond, 2}, {FailureTTL - 1, 2}, {1, 3}} {
		w.clock.Step(c.step)
		if r := a.Authenticate(w.ctx(), withToken(token)); r.Outcome != Authenticated {
			t.Errorf("%d: got %q", i, seen(r))
		}
		if n := len(w.reviews.Tokens()); n != c.reviews {
			t.Errorf("%d: %d reviews, want %d", i, n, c.reviews)
		}
	}
}

func TestAudiences(t *testing.T) {
	w := newWorld(t)
	w.reviews.Know("ours", alice, "spillway", "other")
	w.reviews.Know("theirs", alice, "other")
	w.reviews.Know("silent", alice) // of an API server that does not look at audiences
	check := func(a *Authenticator, token string, want Outcome, wantErr error) {
		t.Helper()
		if r := a.Authenticate(w.ctx(), withToken(token)); r.Outcome != want || !errors.Is(r.Err, wantErr) {
			t.Errorf("%s: got %q, %v, want %q, %v", token, seen(r), r.Err, want, wantErr)
		}
	}
	strict := w.authenticator(func(o *AuthenticatorOptions) { o.Audiences = []string{"spillway", "spillway-2"} })
	check(strict, "ours", Authenticated, nil)
	check(strict, "theirs", Refused, errRefusedToken)
	check(strict, "silent", Refused, errAudience)
	if asked := w.reviews.Tokens(); !slices.Equal(asked[0].Audiences, []string{"spillway", "spillway-2"}) {
		t.Errorf("asked for %q", asked[0].Audiences)
	}
	check(w.authenticator(), "silent", Authenticated, nil)
}

// A request with neither a single bearer token nor a front proxy's certificate is anonymous.
// Neither an anonymous request nor one that impersonates causes a review.
func TestNotAuthenticated(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator()
	for _, c := range []struct {
		header http.Header
		want   Outcome
	}{
		{nil, Anonymous},
		{http.Header{"Authorization": {"Basic eA=="}}, Anonymous},
		{http.Header{"Authorization": {"Bearer a", "Bearer b"}}, Anonymous},
		{http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}, Anonymous},
		{http.Header{"Authorization": {"Bearer a"}, "Impersonate-User": {"root"}}, Impersonating},
	} {
		if r := a.Authenticate(w.ctx(), AuthnRequest{Header: c.header}); r.Outcome != c.want || r.Err != nil ||
			r.Identity != nil || r.Credential != nil {
			t.Errorf("%v: got %+v", c.header, r)
		}
	}
	if n := len(w.reviews.Tokens()); n != 0 {
		t.Errorf("%d reviews", n)
	}
	for _, code := range []int{401, 403, 404, 429, 500, 503} {
		w.reviews.Fail(code)
		w.clock.Step(FailureTTL)
		r := a.Authenticate(w.ctx(), withToken("t"))
		var failure *NotReviewedError
		if r.Outcome != Unknown || !errors.As(r.Err, &failure) || failure.Code != code ||
			strings.Contains(r.Err.Error(), "Bearer") {
			t.Errorf("%d: got %q, %v", code, seen(r), r.Err)
		}
	}
	asked := len(w.reviews.Tokens())
	a.Authenticate(w.ctx(), withToken("t"))
	if n := len(w.reviews.Tokens()); n != asked {
		t.Error("an API server that fails gets another request at once")
	}
	w.server.Down()
	w.clock.Step(FailureTTL)
	if r := a.Authenticate(w.ctx(), withToken("t")); r.Outcome != Unknown || r.Err == nil {
		t.Errorf("down: got %q, %v", seen(r), r.Err)
	}
}

// A cached answer that accepts a token holds for its time even if the API server fails meanwhile.
// After that time, an error authenticates no request.
func TestUpstreamFails(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator()
	w.reviews.Know("t", alice)
	a.Authenticate(w.ctx(), withToken("t"))
	w.reviews.Fail(500)
	w.clock.Step(AnswerTTL - 1)
	if r := a.Authenticate(w.ctx(), withToken("t")); r.Outcome != Authenticated {
		t.Errorf("within its time: %q", seen(r))
	}
	w.clock.Step(1)
	if r := a.Authenticate(w.ctx(), withToken("t")); r.Outcome != Unknown || r.Identity != nil {
		t.Errorf("after its time: %q", seen(r))
	}
}

// Requests that bring the same token while a review of it is under way share its answer.
func TestHerdOfOneToken(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator()
	w.reviews.Know("t", alice)
	resume := w.reviews.Stall()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if r := a.Authenticate(w.ctx(), withToken("t")); r.Outcome != Authenticated {
				t.Errorf("got %q", seen(r))
			}
		})
	}
	w.await(func() bool { return len(w.reviews.Tokens()) > 0 })
	resume()
	all.Wait()
	if n := len(w.reviews.Tokens()); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

// Credentials are sent to the API server that is configured, wherever that points.
func TestRedirectsAreNotFollowed(t *testing.T) {
	w := newWorld(t)
	w.server.Handle(tokenReviewsPath, http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect))
	r := w.authenticator().Authenticate(w.ctx(), withToken("t"))
	var failure *NotReviewedError
	if !errors.As(r.Err, &failure) || failure.Code != http.StatusTemporaryRedirect {
		t.Errorf("got %q, %v", seen(r), r.Err)
	}
	for _, request := range w.server.Requests() {
		if request.Path == "/elsewhere" {
			t.Error("the redirect was followed")
		}
	}
}

// A response that is not a TokenReview authenticates no request.
func TestNoReview(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{"", "{", "null", "[]", `{"status":{"authenticated":"yes","user":{"username":"root"}}}`,
		"<html>"} {
		w.server.Handle(tokenReviewsPath, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(http.StatusCreated)
			_, _ = rw.Write([]byte(body))
		}))
		if r := w.authenticator().Authenticate(w.ctx(), withToken("t")); r.Outcome == Authenticated || r.Identity != nil {
			t.Errorf("%q: got %q", body, seen(r))
		}
	}
}

// pki is what certificates of clients and of a front proxy are good for.
func (w *world) pki() (clients, fronts *authtest.CA, a *Authenticator) {
	clients, fronts = authtest.NewCA(w.t, "clients", w.clock.Now()), authtest.NewCA(w.t, "fronts", w.clock.Now())
	a = w.authenticator(func(o *AuthenticatorOptions) {
		o.ClientCA = w.authority(clients)
		o.FrontProxy = &FrontProxy{
			Authority: w.authority(fronts), AllowedNames: []string{"front"},
			NameHeaders: []string{"X-Remote-User", "x-custom-user"},
			UIDHeaders:  []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"},
			ExtraPrefixes: []string{"X-Remote-Extra-"},
		}
	})
	return clients, fronts, a
}

func (w *world) authority(c *authtest.CA) *Authority {
	w.t.Helper()
	a, err := NewAuthority(authtest.WriteCAFile(w.t, authtest.PEM(c.Cert)), w.clock, zap.NewNop())
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func TestCertificates(t *testing.T) {
	w := newWorld(t)
	clients, fronts, a := w.pki()
	later := w.clock.Now().Add(time.Hour)
	uid := func(values ...string) pkix.Name {
		n := pkix.Name{CommonName: "bob"}
		for _, v := range values {
			n.ExtraNames = append(n.ExtraNames,
				pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: v})
		}
		return n
	}
	w.reviews.Know("t", alice)
	const byToken = "success alice dev,system:authenticated"
	bob := clients.Issue(pkix.Name{CommonName: "bob", Organization: []string{"ops"}}, later)
	for _, c := range []struct {
		name          string
		peer          []*x509.Certificate
		want, orToken string
	}{
		{"good", []*x509.Certificate{bob}, "success bob ops,system:authenticated",
			"success bob ops,system:authenticated"},
		{"another authority", []*x509.Certificate{authtest.NewCA(t, "clients", w.clock.Now()).Issue(
			pkix.Name{CommonName: "bob"}, later)}, "failure", byToken},
		{"expired", []*x509.Certificate{clients.Issue(pkix.Name{CommonName: "bob"}, w.clock.Now().Add(-time.Minute))},
			"failure", byToken},
		{"not yet", []*x509.Certificate{clients.Issue(pkix.Name{CommonName: "bob"}, later, func(c *x509.Certificate) {
			c.NotBefore = w.clock.Now().Add(time.Minute)
		})}, "failure", byToken},
		{"for servers", []*x509.Certificate{clients.Issue(pkix.Name{CommonName: "bob"}, later, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})}, "failure", byToken},
		{"nobody's", []*x509.Certificate{clients.Issue(pkix.Name{Organization: []string{"system:masters"}}, later)},
			"failure", byToken},
		{"an id", []*x509.Certificate{clients.Issue(uid("7"), later)}, "success bob system:authenticated",
			"success bob system:authenticated"},
		{"two ids", []*x509.Certificate{clients.Issue(uid("7", "8"), later)}, "failure", byToken},
		{"an empty id", []*x509.Certificate{clients.Issue(uid(""), later)}, "failure", byToken},
		{"the front proxy's, without a user", []*x509.Certificate{fronts.Issue(pkix.Name{CommonName: "front"}, later)},
			"failure", byToken},
	} {
		r := a.Authenticate(w.ctx(), AuthnRequest{Peer: c.peer})
		if got := seen(r); got != c.want || !r.HasCertificate || (r.Err != nil) != (r.Outcome == Refused) {
			t.Errorf("%s: got %q, want %q (%v)", c.name, got, c.want, r.Err)
		}
		both := withToken("t")
		both.Peer = c.peer
		if got := seen(a.Authenticate(w.ctx(), both)); got != c.orToken {
			t.Errorf("%s and a token: got %q, want %q", c.name, got, c.orToken)
		}
	}
	r := a.Authenticate(w.ctx(), AuthnRequest{Peer: []*x509.Certificate{clients.Issue(uid("7"), later)}})
	if r.Identity.uid != "7" || len(r.Identity.extra[CredentialIDExtra]) != 1 ||
		!r.Credential.expires.Equal(later.Truncate(time.Second)) {
		t.Errorf("got %+v until %v", r.Identity, r.Credential.expires)
	}
	if a.ClientCAs() == nil || w.authenticator().ClientCAs() != nil {
		t.Error("certificates are requested where none are wanted, or not where they are")
	}
}

// A certificate may be vouched for by way of another one that the client sends along.
func TestIntermediates(t *testing.T) {
	w := newWorld(t)
	clients, _, a := w.pki()
	middle := clients.Intermediate("middle")
	bob := middle.Issue(pkix.Name{CommonName: "bob"}, w.clock.Now().Add(time.Hour))
	chain := []*x509.Certificate{bob, middle.Cert}
	if r := a.Authenticate(w.ctx(), AuthnRequest{Peer: chain}); r.Outcome != Authenticated {
		t.Errorf("got %q, %v", seen(r), r.Err)
	}
	if r := a.Authenticate(w.ctx(), AuthnRequest{Peer: []*x509.Certificate{bob}}); r.Outcome != Refused {
		t.Errorf("alone: got %q", seen(r))
	}
}

// Headers that name a user count only on a connection that the front proxy has authenticated.
func TestFrontProxy(t *testing.T) {
	w := newWorld(t)
	clients, fronts, a := w.pki()
	later := w.clock.Now().Add(time.Hour)
	headers := http.Header{
		"X-Remote-User": {"carol", "root"}, "X-Remote-Uid": {"u-3"}, "X-Remote-Group": {"dev", "", "qa"},
		"X-Remote-Extra-Scopes": {"read", "write"}, "X-Remote-Extra-Example.com%2fteam": {"a"}, "X_Remote_User": {"root"},
	}
	front := []*x509.Certificate{fronts.Issue(pkix.Name{CommonName: "front"}, later)}
	r := a.Authenticate(w.ctx(), AuthnRequest{Header: headers, Peer: front})
	want := &Identity{
		name: "carol", uid: "u-3", groups: []string{"dev", "qa", "system:authenticated"},
		extra: map[string][]string{"scopes": {"read", "write"}, "example.com/team": {"a"}},
	}
	if r.Outcome != Authenticated || !reflect.DeepEqual(r.Identity, want) {
		t.Errorf("got %q: %+v, want %+v", seen(r), r.Identity, want)
	}
	other := a.Authenticate(w.ctx(), AuthnRequest{Header: http.Header{"X-Custom-User": {"dave"}}, Peer: front})
	if seen(other) != "success dave system:authenticated" || other.Credential.key == r.Credential.key {
		t.Errorf("got %q", seen(other))
	}
	for name, cert := range map[string]*x509.Certificate{
		"another name":     fronts.Issue(pkix.Name{CommonName: "back"}, later),
		"expired":          fronts.Issue(pkix.Name{CommonName: "front"}, w.clock.Now().Add(-time.Minute)),
		"a client":         clients.Issue(pkix.Name{CommonName: "front"}, later),
		"nobody's":         authtest.NewCA(t, "fronts", w.clock.Now()).Issue(pkix.Name{CommonName: "front"}, later),
		"an empty allowed": fronts.Issue(pkix.Name{}, later),
	} {
		if r := a.Authenticate(w.ctx(), AuthnRequest{Header: headers, Peer: []*x509.Certificate{cert}}); r.Identity != nil &&
			r.Identity.name == "carol" {
			t.Errorf("%s is believed: %q", name, seen(r))
		}
	}
	for name, want := range map[string]bool{
		"Authorization": true, "authorization": true, "Impersonate-User": true, "X-Remote-User": true, "X-Custom-User": true,
		"X-Remote-Uid":   true,
		"X-Remote-Group": true, "X-Remote-Extra-Foo": true, "x-remote-extra-foo": true, "X-Remote-Extra": false,
		"Accept": false, "X_Remote_User": false,
	} {
		if a.ReadsHeader(name) != want {
			t.Errorf("ReadsHeader(%q) is %v", name, !want)
		}
	}
	if w.authenticator().ReadsHeader("X-Remote-User") {
		t.Error("headers of a front proxy that there is not are read")
	}
}

// A certificate is proven again by what vouches for it now.
func TestRenewCertificate(t *testing.T) {
	w := newWorld(t)
	clients, fronts, a := w.pki()
	until := w.clock.Now().Add(time.Minute)
	peer := []*x509.Certificate{clients.Issue(pkix.Name{CommonName: "bob"}, until)}
	bob := a.Authenticate(w.ctx(), AuthnRequest{Peer: peer})
	carol := a.Authenticate(w.ctx(), AuthnRequest{
		Header: http.Header{"X-Remote-User": {"carol"}},
		Peer:   []*x509.Certificate{fronts.Issue(pkix.Name{CommonName: "front"}, until)},
	})
	check := func(want Outcome) {
		t.Helper()
		for _, r := range []Result{bob, carol} {
			again := a.Renew(context.Background(), r.Credential)
			if again.Outcome != want || want == Authenticated && again.Identity.name != r.Identity.name {
				t.Errorf("%s: got %q, %v, want %q", r.Identity.name, seen(again), again.Err, want)
			}
		}
	}
	check(Authenticated)
	w.clock.Step(time.Minute + time.Second)
	check(Refused)
}
