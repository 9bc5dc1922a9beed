// Package authentication compares how internal/auth reads requests with kube-apiserver's own code:
// the user, the attributes, and the message of each refusal (W-22, W-174).
package authentication

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // upstream's code logs what it cannot parse
	os.Exit(m.Run())
}

// tries is how many requests made up at random are compared.
const tries = 20_000

// authority signs certificates of clients.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(24 * time.Hour),
	}
	a.cert = a.issue(template)
	return a
}

// issue signs a certificate, the authority's own if it has none yet.
func (a *authority) issue(template *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.next++
	template.SerialNumber = big.NewInt(a.next)
	parent := a.cert
	if parent == nil {
		parent, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// file is a file with the authority's certificate.
func (a *authority) file() *auth.Authority {
	a.t.Helper()
	name := filepath.Join(a.t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
		0o600); err != nil {
		a.t.Fatal(err)
	}
	read, err := auth.NewAuthority(name, clock.RealClock{}, zap.NewNop())
	if err != nil {
		a.t.Fatal(err)
	}
	return read
}

func (a *authority) verify() (x509.VerifyOptions, bool) {
	opts := x509request.DefaultVerifyOptions()
	opts.Roots = x509.NewCertPool()
	opts.Roots.AddCert(a.cert)
	return opts, true
}

// goodToken reports whether a token belongs to a user: all whose first letter is a "t" do.
func goodToken(token string) bool { return strings.HasPrefix(token, "t") }

// reviews answers TokenReviews.
type reviews struct{}

// RoundTrip implements http.RoundTripper.
func (reviews) RoundTrip(r *http.Request) (*http.Response, error) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	if goodToken(review.Spec.Token) {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
			User: authenticationv1.UserInfo{Username: "owner of " + review.Spec.Token}}
	}
	raw, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(raw)),
		Request: r}, nil
}

// world is both sides, and the certificates that clients may have.
type world struct {
	ours   *auth.Authenticator
	theirs authenticator.Request
	certs  [][]*x509.Certificate
}

func newWorld(t testing.TB) *world {
	t.Helper()
	clients, fronts, strangers := newAuthority(t, "clients"), newAuthority(t, "fronts"), newAuthority(t, "strangers")
	names, uids := []string{"X-Remote-User", "x-other-user"}, []string{"X-Remote-Uid"}
	groups, extras := []string{"X-Remote-Group", "X-Remote-Groups"}, []string{"X-Remote-Extra-", "X-Other-"}
	w := &world{ours: auth.NewAuthenticator(auth.AuthenticatorOptions{
		Reviewer: auth.NewReviewer(&url.URL{Scheme: "https", Host: "upstream"}, reviews{}, zap.NewNop()),
		ClientCA: clients.file(),
		FrontProxy: &auth.FrontProxy{
			Authority: fronts.file(), AllowedNames: []string{"front"}, NameHeaders: names, UIDHeaders: uids,
			GroupHeaders: groups, ExtraPrefixes: extras,
		},
	})}
	tokens := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if !goodToken(token) {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: "owner of " + token}}, true, nil
	})
	w.theirs = group.NewAuthenticatedGroupAdder(union.New(
		headerrequest.NewDynamicVerifyOptionsSecure(fronts.verify, headerrequest.StaticStringSlice{"front"},
			headerrequest.StaticStringSlice(names),
			headerrequest.StaticStringSlice(uids), headerrequest.StaticStringSlice(groups),
			headerrequest.StaticStringSlice(extras)),
		x509request.NewDynamic(clients.verify, x509request.CommonNameUserConversion),
		bearertoken.New(tokens),
	))
	uid := func(values ...string) pkix.Name {
		n := pkix.Name{CommonName: "with an id"}
		for _, v := range values {
			n.ExtraNames = append(n.ExtraNames,
				pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: v})
		}
		return n
	}
	w.certs = append(w.certs, nil, nil)
	for _, by := range []*authority{clients, fronts, strangers} {
		for _, subject := range []pkix.Name{
			{CommonName: "front"}, {CommonName: "bob", Organization: []string{"ops", "dev"}}, {Organization: []string{"ops"}},
			uid("7"), uid("7", "8"), uid(""),
			{CommonName: "system:anonymous"}, {CommonName: "carol", Organization: []string{"system:unauthenticated"}},
		} {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
				for _, end := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)} {
					cert := by.issue(&x509.Certificate{Subject: subject, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
					w.certs = append(w.certs, []*x509.Certificate{cert})
					if by == fronts && subject.CommonName == "front" && usage == x509.ExtKeyUsageClientAuth && end.After(time.Now()) {
						w.certs = append(w.certs, slices.Repeat([][]*x509.Certificate{{cert}}, 20)...) // or it would hardly ever be tried
					}
				}
			}
		}
	}
	return w
}

// compare lets both sides authenticate a request, and returns our result.
func (w *world) compare(t *testing.T, header http.Header, peer []*x509.Certificate) auth.Result {
	t.Helper()
	ours := w.ours.Authenticate(t.Context(), auth.AuthnRequest{Header: header.Clone(), Peer: peer})
	r := (&http.Request{Header: header.Clone()}).WithContext(t.Context())
	if peer != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: peer}
	}
	resp, ok, err := w.theirs.AuthenticateRequest(r)
	what := fmt.Sprintf("%q", header)
	if peer != nil {
		what += fmt.Sprintf(" of %q by %q", peer[0].Subject, peer[0].Issuer)
	}
	want := auth.Anonymous
	switch {
	case ok:
		want = auth.Authenticated
	case err != nil:
		want = auth.Refused
	}
	if len(header["Authorization"]) > 1 && ours.Outcome != want {
		// Which of two counts is not ours to say: what upstream takes from the first passes through, as
		// if there were none.
		want = ours.Outcome
		ok = false
		if ours.Outcome == auth.Authenticated && ours.Identity.Name()[:5] == "owner" {
			t.Errorf("%s: one of two tokens is believed", what)
		}
	}
	if ours.Outcome != want {
		t.Errorf("%s: %s (%v), upstream: %s (%v)", what, ours.Outcome, ours.Err, want, err)
		return ours
	}
	if !ok {
		return ours
	}
	i := ours.Identity.UserInfo()
	if i.Username != resp.User.GetName() || i.UID != resp.User.GetUID() || !same(i.Groups, resp.User.GetGroups()) ||
		!sameExtra(i.Extra, resp.User.GetExtra()) {
		t.Errorf("%s:\nours   %+v\ntheirs %+v", what, i, resp.User)
	}
	return ours
}

func same(a, b []string) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// sameExtra compares but for the order of values that come from several headers, which upstream
// takes from a map.
func sameExtra(a map[string]authenticationv1.ExtraValue, b map[string][]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key := range a {
		if !sets.New(a[key]...).Equal(sets.New(b[key]...)) || len(a[key]) != len(b[key]) {
			return false
		}
	}
	return true
}

// pick returns one of them.
func pick[T any](r *mathrand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// header makes up the headers of a request.
func header(r *mathrand.Rand) http.Header {
	h := http.Header{}
	if r.IntN(3) > 0 {
		for range 1 + r.IntN(10)/9 {
			h.Add("Authorization", pick(r, "Bearer ", "bearer ", "BEARER  ", "Basic ", " Bearer ", "Bearer\t", "")+
				pick(r, "t1", "t2 x", "bad", "", " t", "t\u00e4", "t,", "\tt"))
		}
	}
	for range r.IntN(5) {
		name := pick(r, "X-Remote-User", "X-Other-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Groups",
			"X-Remote-Extra-", "X-Remote-Extra-A", "X-Remote-Extra-a%2fB",
			"X-Remote-Extra-%zz", "X-Other-A", "X_remote_user", "x-remote-extra-b", "X-Remote", "Accept")
		h[name] = append(h[name], pick(r, "alice", "", "system:masters", "system:anonymous", "system:unauthenticated", "a,b",
			" "))
	}
	return h
}

func TestAuthenticate(t *testing.T) {
	w, r := newWorld(t), mathrand.New(mathrand.NewPCG(1, 2))
	tally := map[string]int{}
	for range tries {
		result := w.compare(t, header(r), pick(r, w.certs...))
		kind := string(result.Outcome)
		if result.Identity != nil && strings.HasPrefix(result.Identity.Name(), "owner of ") {
			kind += " by token"
		} else if result.Identity != nil &&
			result.Identity.UserInfo().Extra["authentication.kubernetes.io/credential-id"] == nil {
			kind += " by front proxy"
		}
		tally[kind]++
	}
	t.Log(tally)
	for _, kind := range []string{"success", "success by token", "success by front proxy", "failure",
		"anonymous"} {
		if tally[kind] < 100 {
			t.Errorf("%s: only %d of %d", kind, tally[kind], tries)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	w := newWorld(f)
	f.Add("Bearer t", "X-Remote-Extra-A", "x", uint8(2))
	f.Add("bearer \u00a0t", "X-Remote-User", "\x00", uint8(40))
	f.Fuzz(func(t *testing.T, authorization, name, value string, cert uint8) {
		h := http.Header{"Authorization": {authorization}, http.CanonicalHeaderKey(name): {value}}
		for key := range h {
			if len(key) >= 12 && strings.EqualFold(key[:12], "impersonate-") {
				return // not looked at before the request is authenticated, and here never
			}
		}
		w.compare(t, h, w.certs[int(cert)%len(w.certs)])
	})
}

// resolver is what kube-apiserver reads requests with. Package requestinfo uses the same code, so
// the comparison of attributes shows only that no escape, segment or field is lost on the way to it
// and from it. The comparison of refusals shows what auth.Forbidden makes of them.
var resolver = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// compareAttributes compares what both sides take a request for, and the message of its refusal.
func compareAttributes(t *testing.T, method, path, query string) {
	t.Helper()
	ours, asked := auth.AttributesOf(method, path, query)
	what := fmt.Sprintf("%s %s?%s", method, path, query)
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		if asked {
			t.Errorf("%s is reviewed, and net/http would not have it", what)
		}
		return
	}
	u.RawQuery = query
	info, err := resolver.NewRequestInfo(&http.Request{Method: method, URL: u})
	if err != nil {
		if asked {
			t.Errorf("%s is reviewed, and upstream says: %v", what, err)
		}
		return
	}
	if !asked {
		t.Errorf("%s is not asked about, and upstream does", what)
		return
	}
	want := auth.Attributes{Verb: info.Verb, Path: info.Path}
	if info.IsResourceRequest {
		want = auth.Attributes{
			Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
			Subresource: info.Subresource,
			Namespace:   info.Namespace, Name: info.Name, FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
		}
	}
	if ours != want {
		t.Errorf("%s:\nours   %+v\ntheirs %+v", what, ours, want)
		return
	}
	who := &user.DefaultInfo{Name: `a "<&>"`}
	attributes := authorizer.AttributesRecord{
		User: who, Verb: info.Verb, Namespace: info.Namespace, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Resource:    info.Resource,
		Subresource: info.Subresource, Name: info.Name, ResourceRequest: info.IsResourceRequest, Path: info.Path,
	}
	for _, reason := range []string{"", "because <of> it"} {
		status := responsewriters.ForbiddenStatusError(attributes, reason).Status()
		status.Kind, status.APIVersion = "Status", "v1"
		if got := auth.Forbidden(auth.NewIdentity(authenticationv1.UserInfo{Username: who.Name}), ours,
			reason); !reflect.DeepEqual(*got, status) {
			t.Errorf("%s:\nours   %+v\ntheirs %+v", what, *got, status)
		}
	}
}

func TestAttributesMatchKubeAPIServer(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(3, 4))
	for range tries {
		path := pick(r, "/", "//", "") + pick(r, "api/", "apis/", "apis/apps/", "api", "foo/", "api%2F")
		for range r.IntN(7) {
			path += pick(r, "v1", "v1", "watch", "proxy", "namespaces", "c1", "pods", "a", "status", "finalize", "log", "",
				"%61", "a%2Fb", "..", "a%zz", "a;b", "a b") + "/"
		}
		if r.IntN(3) > 0 {
			path = strings.TrimSuffix(path, "/")
		}
		var query []string
		for range r.IntN(4) {
			query = append(query, pick(r, "watch", "watch=", "watch=1", "watch=0", "watch=FALSE", "watch=no", "limit=abc",
				"limit=5", "timeoutSeconds=x", "fieldSelector=metadata.name%3Da",
				"fieldSelector=metadata.name=a,spec.x!=b", "fieldSelector=metadata.name%3D..", "fieldSelector=x",
				"fieldSelector=metadata.name=a,metadata.name=b", "labelSelector=a%3Db",
				"labelSelector=x+in+(", "labelSelector=%zz", "a;b=1", "resourceVersion=0", "allowWatchBookmarks=maybe",
				"fieldSelector=", "sendInitialEvents=1"))
		}
		compareAttributes(t, pick(r, "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "FOO"),
			path, strings.Join(query, "&"))
	}
}

func FuzzAttributes(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/c1/pods/a/log", "watch=1")
	f.Add("DELETE", "/apis/apps/v1/watch/deployments", "fieldSelector=metadata.name%3Da&labelSelector=b")
	f.Add("GET", "//api//v1/pods//", "limit=abc&watch")
	f.Fuzz(compareAttributes)
}
