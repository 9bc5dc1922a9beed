package serve

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/passthrough"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// newAccess asks the API server at base.
func newAccess(t *testing.T, base *url.URL, registry prometheus.Registerer, o rigOptions) *Access {
	t.Helper()
	own := bareTransport()
	t.Cleanup(own.CloseIdleConnections)
	reviewer := auth.NewReviewer(base, own, zap.NewNop())
	who := auth.AuthenticatorOptions{Reviewer: reviewer, MaxReviews: o.reviews}
	if o.clientCA != "" {
		authority, err := auth.NewAuthority(o.clientCA, clock.RealClock{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		who.ClientCA = authority
	}
	a := &Access{Authenticator: auth.NewAuthenticator(who),
		Authorizer: auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer})}
	a.Reauthorizer = reauth.NewReauthorizer(reauth.ReauthorizerOptions{
		Authenticator: a.Authenticator, Authorizer: a.Authorizer, Metrics: reauth.NewMetrics(registry),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Reauthorizer.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// people makes two users known to upstream. Alice may read config maps of namespace n.
func (r *rig) people() {
	r.reviews.Know("alice", authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}})
	r.reviews.Know("bob", authenticationv1.UserInfo{Username: "bob"})
	r.reviews.Allow(aliceInN)
}

func aliceInN(s authorizationv1.SubjectAccessReviewSpec) bool {
	a := s.ResourceAttributes
	return s.User == "alice" && a != nil && a.Resource == "configmaps" && a.Namespace == "n"
}

func bearing(token string) rawclient.RequestOption {
	return rawclient.Header("Authorization", "Bearer "+token)
}

// upstreams reports that upstream answered the request, which the fake API server does without
// authenticating it.
func upstreams(h http.Header) bool { return h.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" }

const inN, inM = "/api/v1/namespaces/n/configmaps", "/api/v1/namespaces/m/configmaps"

// Requests of a known user are answered from memory if they are allowed and refused here if they
// are not; all others pass through to upstream (D12).
func TestAllowedRequestsAreAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{})
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	up.Create(fakeapiserver.ConfigMaps, "m", "secretive")
	r := rigOf(t, up, rigOptions{access: true})
	r.people()
	for _, c := range []struct {
		name, target string
		opts         []rawclient.RequestOption
		code         int
		upstream     bool
	}{
		{"allowed list", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 200, false},
		{"allowed get", inN + "/a?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 200, false},
		{"forbidden list", inM + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 403, false},
		{"forbidden get", inM + "/secretive?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 403, false},
		{"forbidden watch", inM + "?watch=1&resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 403, false},
		// W-30
		{"forbidden, and malformed", inM + "?resourceVersion=0&limit=x", []rawclient.RequestOption{bearing("alice")}, 403,
			false},
		{"allowed, and malformed", inN + "?resourceVersion=0&limit=x", []rawclient.RequestOption{bearing("alice")}, 400,
			false},
		// W-30
		{"malformed before anybody is asked", inM + "?resourceVersion=0&timeout=x",
			[]rawclient.RequestOption{bearing("alice")}, 400, true},
		{"somebody else", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("bob")}, 403, false},
		{"nobody", inN + "?resourceVersion=0", nil, 200, true},
		{"unknown token", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("mallory")}, 200, true},
		{"two tokens", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice"), bearing("alice")}, 200,
			true},
		{"basic", inN + "?resourceVersion=0",
			[]rawclient.RequestOption{rawclient.Header("Authorization", "Basic YTpi")}, 200, true},
		{"impersonating", inN + "?resourceVersion=0",
			[]rawclient.RequestOption{bearing("alice"), rawclient.Header("Impersonate-User", "bob")}, 200, true},
		{"hop by hop", inN + "?resourceVersion=0",
			[]rawclient.RequestOption{bearing("alice"), rawclient.Header("Connection", "authorization")}, 400, false},
		{"not mirrored", "/api/v1/namespaces/n/nothing?resourceVersion=0", []rawclient.RequestOption{bearing("bob")}, 404,
			true},
		{"a claim", inN + "?resourceVersion=0",
			[]rawclient.RequestOption{bearing("bob"), rawclient.Header("X-Remote-User", "alice")}, 403, false},
	} {
		for proto, opts := range map[string][]rawclient.RequestOption{"1.1": nil,
			"2": {rawclient.Through(overHTTP2(t, 1<<20))}} {
			base := r.url
			if proto == "2" {
				if base = r.tlsURL; c.name == "hop by hop" {
					continue // there is no such header
				}
			}
			got, err := rawclient.List(deadline(t), base, c.target, append(opts, c.opts...)...)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got.Status != c.code || upstreams(got.Header) != c.upstream {
				t.Errorf("%s over HTTP/%s: %d, upstream: %v, %s; want %d, %v", c.name, proto, got.Status, upstreams(got.Header),
					got.Body, c.code, c.upstream)
			}
			if got.Status == http.StatusForbidden && (strings.Contains(string(got.Body), "resourceVersion") ||
				got.Header.Get("X-Content-Type-Options") != "nosniff") {
				t.Errorf("%s over HTTP/%s: %v %s", c.name, proto, got.Header, got.Body)
			}
		}
	}
}

// A 403 is upstream's, in the form that the client understands (W-10, W-174).
func TestARefusalHasTheFormOfTheAPIServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true})
	r.people()
	const plain = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":` +
		`"configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" ` +
		`in the namespace \"n\"","reason":"Forbidden","details":{"kind":"configmaps"},"code":403}` + "\n"
	if got := r.list(inN+"?resourceVersion=0", bearing("bob")); string(got.Body) != plain {
		t.Errorf("got  %s\nwant %s", got.Body, plain)
	}
	got := r.list(inN+"?resourceVersion=0", bearing("bob"),
		rawclient.Header("Accept", "application/vnd.kubernetes.protobuf"))
	if got.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" ||
		!strings.HasPrefix(string(got.Body), "k8s\x00") {
		t.Errorf("%v %q", got.Header, got.Body)
	}
	if got := r.list(inN+"?resourceVersion=0&pretty=1", bearing("bob")); !strings.HasPrefix(string(got.Body),
		"{\n  \"kind\": \"Status\"") {
		t.Errorf("%s", got.Body)
	}
}

// The authorizer gets all the attributes that upstream's own would get (W-22).
func TestAttributesOfARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true})
	r.people()
	r.list(inM+"?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dx&labelSelector=app%3Dy", bearing("alice"))
	asked := r.reviews.Accesses()
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	a := asked[0].ResourceAttributes
	if asked[0].User != "alice" || a.Verb != "watch" || a.Name != "x" || a.Namespace != "m" ||
		a.Resource != "configmaps" ||
		len(a.FieldSelector.Requirements) != 1 || len(a.LabelSelector.Requirements) != 1 {
		t.Errorf("asked %+v, %+v", asked[0], a)
	}
}

// While reviews fail, a request passes through, and upstream decides itself.
func TestUnaskedIsPassedThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true})
	r.people()
	r.reviews.Fail(http.StatusInternalServerError)
	if got := r.list(inN+"?resourceVersion=0", bearing("alice")); !upstreams(got.Header) {
		t.Errorf("%d %v", got.Status, got.Header)
	}
}

// A known user is not admitted, either, while upstream does not say whether the request is allowed:
// with a token it passes through; with a certificate, which cannot pass through, it is refused.
func TestKnownAndUnasked(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	r := newRig(t, rigOptions{access: true, clientCA: ca.file()})
	r.people()
	r.list(inN+"?resourceVersion=0", bearing("alice")) // her token is remembered from now on
	r.reviews.Fail(http.StatusInternalServerError)
	cert := ca.user("alice", time.Now().Add(time.Hour))
	for _, target := range []string{inN + "/a?resourceVersion=0", inM + "?resourceVersion=0",
		inM + "?resourceVersion=0&watch=1&timeoutSeconds=1"} {
		if got := r.list(target, bearing("alice")); !upstreams(got.Header) {
			t.Errorf("%s: %d %v", target, got.Status, got.Header)
		}
		if got := r.withCertificate(cert, false, "GET", target,
			http.NoBody); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s by certificate: %d %s", target, got.StatusCode, got.Status)
		}
	}
}

// eager is a catalog that would mirror any resource. It records which ones are looked up.
type eager struct {
	source.Catalog
	found chan schema.GroupVersionResource
}

func (e eager) Find(gvr schema.GroupVersionResource) *source.Source {
	e.found <- gvr
	return e.Catalog.Find(gvr)
}

func (e eager) Knows(schema.GroupVersionResource) bool { return true }
func (e eager) Soon(schema.GroupVersionResource) bool  { return false }

// A request for a resource that its user may not read does not begin a mirror.
func TestNothingIsMirroredForStrangers(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true})
	r.people()
	found := make(chan schema.GroupVersionResource, 10)
	r.server.planner.Catalog = eager{r.catalog, found}
	for _, opts := range [][]rawclient.RequestOption{nil, {bearing("bob")}, {bearing("mallory")},
		{bearing("alice"), rawclient.Header("Impersonate-User", "root")}} {
		r.list("/api/v1/namespaces/n/configmaps?resourceVersion=0", opts...)
		r.list("/apis/example.com/v1/namespaces/n/widgets?limit=500", opts...)
	}
	if len(found) != 0 {
		t.Errorf("looked for %v", <-found)
	}
	r.list(inN+"?resourceVersion=0", bearing("alice"))
	if len(found) != 1 {
		t.Errorf("looked %d times for what alice may have", len(found))
	}
}

// A watch that upstream no longer allows ends cleanly, so that its client requests it again and
// receives the reason.
func TestWatchIsRevoked(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		for _, proto := range []string{"1.1", "2"} {
			r := newRig(t, rigOptions{access: true, goroutines: goroutines})
			r.people()
			base, opts := r.url, []rawclient.RequestOption{bearing("alice")}
			if proto == "2" {
				base, opts = r.tlsURL, append(opts, rawclient.Through(overHTTP2(t, 1<<20)))
			}
			w := rawclient.Watch(deadline(t), base, inN+"?watch=1&resourceVersion=0&allowWatchBookmarks=1", opts...)
			t.Cleanup(w.Close)
			until(t, w, isEnd)
			r.up.Create(fakeapiserver.ConfigMaps, "n", "seen")
			until(t, w, func(e rawclient.WatchEvent) bool { return e.Type == "ADDED" })
			r.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
			r.access.Reauthorizer.Check(func(*auth.Identity, auth.Attributes) bool { return true })
			over(t, w, rawclient.Ended)
			r.ended(configMaps, watch.EndForbidden, 1)
			if got, err := rawclient.List(deadline(t), base, inN+"?watch=1&resourceVersion=1", opts...); err != nil ||
				got.Status != http.StatusForbidden {
				t.Errorf("asked again: %+v, %v", got, err)
			}
		}
	})
}

// checks is how many credentials and permissions the Reauthorizer asks about, as of a turn of its
// own that is yet to come.
func (r *rig) checks() float64 {
	r.t.Helper()
	r.access.Reauthorizer.Check(func(*auth.Identity, auth.Attributes) bool { return false })
	return r.metric("spillway_reauthorization_targets")
}

// A watch that has ended is not reviewed again, however it ended.
func TestWatchIsForgotten(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		for _, proto := range []string{"1.1", "2"} {
			r := newRig(t, rigOptions{access: true, goroutines: goroutines})
			r.people()
			base, opts := r.url, []rawclient.RequestOption{bearing("alice")}
			if proto == "2" {
				base, opts = r.tlsURL, append(opts, rawclient.Through(overHTTP2(t, 1<<20)))
			}
			for reason, end := range map[watch.EndReason]func(*rawclient.Watcher){
				watch.EndClientClosed: (*rawclient.Watcher).Close,
				watch.EndTimeout:      func(w *rawclient.Watcher) { over(t, w, rawclient.Ended) },
			} {
				target := inN + "?watch=1&resourceVersion=0&allowWatchBookmarks=1"
				if reason == watch.EndTimeout {
					target += "&timeoutSeconds=1"
				}
				w := rawclient.Watch(deadline(t), base, target, opts...)
				t.Cleanup(w.Close)
				until(t, w, isEnd)
				if reason == watch.EndClientClosed { // it lasts until it is ended
					eventually(t, "a token and a permission to be asked about", func() bool { return r.checks() == 2 })
				}
				end(w)
				r.ended(configMaps, reason, 1)
				eventually(t, "nothing to be asked about over HTTP/"+proto, func() bool { return r.checks() == 0 })
			}
		}
	})
}

// A revoked watch that ended like any other leaves its connection alone: when the connection would
// be cut, after CutAfter, the watch is over.
func TestConnectionAfterARevokedWatch(t *testing.T) {
	eachWay(t, func(t *testing.T, goroutines bool) {
		t.Parallel()
		r := newRig(t, rigOptions{access: true, goroutines: goroutines})
		r.people()
		c := r.dial(r.url)
		answers := bufio.NewReader(c)
		ask := func(target string) *http.Response {
			t.Helper()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\n\r\n", target)
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			return answer
		}
		answer := ask(inN + "?watch=1&resourceVersion=0")
		r.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return false })
		r.access.Reauthorizer.Check(func(*auth.Identity, auth.Attributes) bool { return true })
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatalf("the watch did not end cleanly: %v", err)
		}
		r.ended(configMaps, watch.EndForbidden, 1)
		for range 2 { // before and after it would have been cut
			next := ask(inN + "?resourceVersion=0")
			if _, err := io.Copy(io.Discard, next.Body); err != nil || next.StatusCode != http.StatusForbidden {
				t.Errorf("the next request: %s, %v", next.Status, err)
			}
			time.Sleep(watch.CleanEndTimeout + watch.CleanEndTimeout/4)
		}
	})
}

// A listener that lends the proxy's rights does not lend them to a request with an identity of its
// own: that is not answered with what the proxy may read, whether requests are reviewed or not.
func TestOwnIdentityIsNotAnsweredAsSelf(t *testing.T) {
	t.Parallel()
	for _, asking := range []bool{false, true} {
		r := newRig(t, rigOptions{access: asking, identity: passthrough.IdentitySelf})
		if asking {
			r.people()
		}
		client := overHTTP2(t, 1<<20)
		for _, c := range []struct {
			name, value string
			code        int
			upstream    bool
		}{
			{"X-Nothing", "of his own", 200, false},
			{"Authorization", "Bearer mallory", 200, true},
			{"Authorization", "Basic YTpi", 200, true},
			{"Authorization", "", 200, true},
			{"Impersonate-User", "root", 403, false}, // the proxy's right to impersonate is not lent
			{"Impersonate-Group", "system:masters", 403, false},
			{"Impersonate-Extra-Scopes", "x", 403, false},
		} {
			for base, opts := range map[string][]rawclient.RequestOption{r.url: nil,
				r.tlsURL: {rawclient.Through(client)}} {
				got, err := rawclient.List(deadline(t), base, mapsPath+"?resourceVersion=0",
					append(opts, rawclient.Header(c.name, c.value))...)
				if err != nil {
					t.Fatal(err)
				}
				if got.Status != c.code || upstreams(got.Header) != c.upstream {
					t.Errorf("%s: %q, asking: %v: %d, upstream: %v, %s; want %d, %v", c.name, c.value, asking, got.Status,
						upstreams(got.Header), got.Body, c.code, c.upstream)
				}
			}
		}
		if n := answeredHere(r); n != 2 {
			t.Errorf("asking: %v: %v were answered as the proxy, want the two without an identity", asking, n)
		}
	}
}

// authority signs client certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	pair := a.sign(template, template)
	a.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	a.cert, _ = x509.ParseCertificate(pair.Certificate[0])
	return a
}

// sign makes a key and signs it, with its own key if there is no other yet.
func (a *authority) sign(template, parent *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// user is the certificate of one until a time.
func (a *authority) user(name string, until time.Time, groups ...string) tls.Certificate {
	if len(groups) == 0 {
		groups = []string{"dev"}
	}
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter:  until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert)
}

func (a *authority) file() string {
	name := filepath.Join(a.t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
		0o600); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// A request with a client certificate is answered from memory only. One that would have to pass
// through is refused, because it would have another identity upstream; so is one with an invalid
// certificate.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	r := newRig(t, rigOptions{access: true, clientCA: ca.file()})
	r.people()
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	good, expired, strange := ca.user("alice", time.Now().Add(time.Hour)), ca.user("alice", time.Now().Add(-time.Minute)),
		other.user("alice", time.Now().Add(time.Hour))
	for _, c := range []struct {
		name, method, target string
		cert                 tls.Certificate
		token                string
		header               [2]string
		code                 int
		upstream             bool
	}{
		{"allowed", "GET", inN + "?resourceVersion=0", good, "", [2]string{}, 200, false},
		{"forbidden", "GET", inM + "?resourceVersion=0", good, "", [2]string{}, 403, false},
		{"a write", "POST", inN, good, "", [2]string{}, 403, false},
		{"something else", "GET", "/version", good, "", [2]string{}, 403, false},
		{"a certificate wins over a token", "GET", inM + "?resourceVersion=0", good, "bob", [2]string{}, 403, false},
		{"and decides where it goes", "GET", "/version", good, "bob", [2]string{}, 403, false},
		{"impersonating", "GET", inN + "?resourceVersion=0", good, "", [2]string{"Impersonate-User", "bob"}, 403, false},
		{"expired", "GET", inN + "?resourceVersion=0", expired, "", [2]string{}, 401, false},
		{"expired, and a write", "POST", inN, expired, "", [2]string{}, 401, false},
		{"a stranger's", "GET", inN + "?resourceVersion=0", strange, "", [2]string{}, 401, false},
		{"a stranger's, in a form that is not made here", "GET", inN + "?resourceVersion=0", strange, "",
			[2]string{"Accept", "application/cbor"}, 401, false},
		{"a stranger's, and a token", "GET", inN + "?resourceVersion=0", strange, "alice", [2]string{}, 200, false},
		{"a stranger's, and a bad token", "GET", inN + "?resourceVersion=0", strange, "mallory", [2]string{}, 200, true},
	} {
		for _, http2 := range []bool{false, true} {
			headers := [][2]string{c.header}
			if c.token != "" {
				headers = append(headers, [2]string{"Authorization", "Bearer " + c.token})
			}
			answer := r.withCertificate(c.cert, http2, c.method, c.target, http.NoBody, headers...)
			if answer.StatusCode != c.code || upstreams(answer.Header) != c.upstream {
				t.Errorf("%s over %s: %d, upstream: %v, %s; want %d, %v", c.name, answer.Proto, answer.StatusCode,
					upstreams(answer.Header), answer.Status, c.code, c.upstream)
			}
		}
	}
}

// asserted is the identity that a request asserts to upstream.
func asserted(h http.Header) string {
	return strings.Join([]string{
		strings.Join(h["Authorization"], ","), strings.Join(h["Impersonate-User"], ","),
		strings.Join(h["Impersonate-Group"], ","), h.Get("Impersonate-Uid"), h.Get("X-Remote-User"),
		strings.Join(h["Sec-Websocket-Protocol"], ","),
	}, "|")
}

// The user of a client certificate is impersonated upstream, if that is configured: never beside
// other credentials or the client's own impersonation headers, and never as a member of certain
// groups.
func TestImpersonatedCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	seen := make(chan string, 1)
	up := fakeapiserver.New(fakeapiserver.Options{})
	up.Handle("/seen", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- asserted(r.Header)
	}))
	plain := bareTransport()
	t.Cleanup(plain.CloseIdleConnections)
	r := rigOf(t, up, rigOptions{access: true, clientCA: ca.file(), as: all(withToken{plain}),
		neverAs: []string{"system:masters"}})
	r.people()
	alice, root := ca.user("alice", time.Now().Add(time.Hour)), ca.user("root", time.Now().Add(time.Hour),
		"system:masters")
	none := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "lonely"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	lonely := ca.sign(none, ca.cert)
	none.Subject.CommonName = "system:serviceaccount:n:a"
	account := ca.sign(none, ca.cert)
	for _, c := range []struct {
		name   string
		cert   tls.Certificate
		header [2]string
		code   int
		want   string
	}{
		{"alice", alice, [2]string{}, 200, "Bearer own|alice|dev|||"},
		{"alice with a token", alice, [2]string{"Authorization", "Bearer bob"}, 200, "Bearer own|alice|dev|||"},
		{"alice with a token for a browser", alice,
			[2]string{"Sec-WebSocket-Protocol", "v4.channel.k8s.io, " + passthrough.WebSocketBearer + "Ym9i, x"}, 200,
			"Bearer own|alice|dev|||v4.channel.k8s.io, x"},
		{"alice with nothing but that", alice, [2]string{"Sec-WebSocket-Protocol", passthrough.WebSocketBearer + "Ym9i"}, 200,
			"Bearer own|alice|dev|||"},
		{"alice with a claim", alice, [2]string{"X-Remote-User", "bob"}, 200, "Bearer own|alice|dev|||"},
		{"alice as bob", alice, [2]string{"Impersonate-User", "bob"}, 403, ""},
		{"alice in another group", alice, [2]string{"Impersonate-Group", "system:masters"}, 403, ""},
		{"root", root, [2]string{}, 403, ""},
		{"who has no groups", lonely, [2]string{}, 200, "Bearer own|lonely||||"},
		{"a service account's name and none of its groups", account, [2]string{}, 200,
			"Bearer own|system:serviceaccount:n:a|system:authenticated|||"},
	} {
		for _, http2 := range []bool{false, true} {
			for _, long := range []bool{false, true} { // which is streamed
				body := io.Reader(http.NoBody)
				if long {
					body = io.MultiReader(strings.NewReader("x")) // of unknown length
				}
				answer := r.withCertificate(c.cert, http2, "POST", "/seen", body, c.header)
				got := ""
				select {
				case got = <-seen:
				default:
				}
				if answer.StatusCode != c.code || got != c.want {
					t.Errorf("%s over %s, long: %v: %d, upstream was told %q; want %d, %q", c.name, answer.Proto, long,
						answer.StatusCode, got, c.code, c.want)
				}
			}
		}
	}
}

// A certificate whose identity a header would change is refused where the request would pass
// through, over both versions and for each way, and the answer names the part and what to do.
// Upstream hears nothing. From memory the identity gets what exactly it may have.
func TestUncarriableCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	up := fakeapiserver.New(fakeapiserver.Options{})
	up.Handle("/seen", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("upstream got %q", asserted(r.Header))
	}))
	plain := bareTransport()
	t.Cleanup(plain.CloseIdleConnections)
	r := rigOf(t, up, rigOptions{access: true, clientCA: ca.file(), as: all(withToken{plain})})
	r.people()
	until := time.Now().Add(time.Hour)
	for part, cert := range map[string]tls.Certificate{
		`the user "admin " begins or ends with a blank`:  ca.user("admin ", until),
		`the user "\tadmin" begins or ends with a blank`: ca.user("\tadmin", until),
		`the user "a\r\nImpersonate-Group: system:masters" holds a control`: ca.user("a\r\nImpersonate-Group: system:masters",
			until),
		`the group "system:masters " begins or ends with a blank`: ca.user("mallory", until,
			"system:masters "),
		`the group "system:masters\n" holds a control character`: ca.user("mallory", until, "dev",
			"system:masters\n"),
		`the group "\x00" holds a control character`:                             ca.user("mallory", until, "\x00"),
		`the user "system:anonymous" is not in the group system:unauthenticated`: ca.user("system:anonymous", until),
	} {
		for _, http2 := range []bool{false, true} {
			for _, method := range []string{"GET", "POST"} {
				answer := r.withCertificate(cert, http2, method, "/seen", http.NoBody)
				var status metav1.Status
				if err := json.Unmarshal([]byte(answer.Status), &status); err != nil || answer.StatusCode != 403 ||
					!strings.Contains(status.Message, part) ||
					!strings.Contains(status.Message, "use a bearer token, the API server itself, or another name") {
					t.Errorf("%s over %s: %d %q, want %q", method, answer.Proto, answer.StatusCode, answer.Status, part)
				}
			}
		}
	}
}

// A client's own impersonation over HTTP/2 may have blanks that are lost on the way to upstream:
// refused, not carried out as another user's.
func TestForwardRefusesImpersonationThatChanges(t *testing.T) {
	r := newRig(t, rigOptions{access: true})
	for _, name := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-K"} {
		for _, value := range []string{"admin ", " admin", "admin\t"} {
			tr := &http.Transport{ForceAttemptHTTP2: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // throw-away
			request, _ := http.NewRequestWithContext(deadline(t), "GET", r.tlsURL+"/api/v1/nodes", http.NoBody)
			request.Header = http.Header{"Authorization": {"Bearer alice"}, name: {value}}
			answer, err := tr.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			tr.CloseIdleConnections()
			if answer.ProtoMajor != 2 || answer.StatusCode != 403 ||
				!strings.Contains(string(text), "the header "+name+" begins or ends with a blank") {
				t.Errorf("%s %q: %d %s", name, value, answer.StatusCode, text)
			}
		}
	}
}

// withCertificate sends a request on a connection of its own. The answer's body has been read into
// Status.
func (r *rig) withCertificate(cert tls.Certificate, http2 bool, method, target string, body io.Reader,
	headers ...[2]string) *http.Response {
	r.t.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{cert}}} //nolint:gosec // throw-away
	defer tr.CloseIdleConnections()
	request, err := http.NewRequestWithContext(deadline(r.t), method, r.tlsURL+target, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		if h[0] != "" {
			request.Header.Set(h[0], h[1])
		}
	}
	answer, err := tr.RoundTrip(request)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	answer.Status = string(text)
	if (answer.ProtoMajor == 2) != http2 {
		r.t.Fatalf("%s %s: answered over %s", method, target, answer.Proto)
	}
	return answer
}

// A listener with an owner serves only requests with the owner's tokens: upstream does not even see
// others.
func TestAListenerWithAnOwnerServesTheOwnerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true, mutate: func(a *Access) { a.Owner = "alice" }})
	r.people()
	r.reviews.Know("rotated", authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	as, cbor := rawclient.Header("Impersonate-User", "bob"), rawclient.Header("Accept", "application/cbor")
	for _, c := range []struct {
		name, target string
		opts         []rawclient.RequestOption
		code         int
		upstream     bool
	}{
		{"allowed", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 200, false},
		{"by another token", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("rotated")}, 200, false},
		{"forbidden", inM + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice")}, 403, false},
		{"not in memory", inN + "/a", []rawclient.RequestOption{bearing("alice")}, 200, true},
		{"as somebody else", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("alice"), as}, 200, true},
		{"somebody else", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("bob")}, 403, false},
		{"somebody else, as somebody else", inN + "?resourceVersion=0", []rawclient.RequestOption{bearing("bob"), as}, 403,
			false},
		{"somebody else, not in memory", inN + "/a", []rawclient.RequestOption{bearing("bob")}, 403, false},
		{"a forged token", inN + "/a", []rawclient.RequestOption{bearing("mallory")}, 401, false},
		{"nobody", inN + "/a", nil, 401, false},
		{"nobody, as somebody else", inN + "/a", []rawclient.RequestOption{as}, 401, false},
		{"somebody else, in a form that is not made here", inN + "/a", []rawclient.RequestOption{bearing("bob"), cbor},
			403, false},
		{"nobody, in a form that is not made here", "/version", []rawclient.RequestOption{cbor}, 401, false},
	} {
		if got := r.list(c.target, c.opts...); got.Status != c.code || upstreams(got.Header) != c.upstream {
			t.Errorf("%s: %d, upstream: %v, %s; want %d, %v", c.name, got.Status, upstreams(got.Header), got.Body, c.code,
				c.upstream)
		}
	}
	r.reviews.Fail(http.StatusInternalServerError)
	if got := r.list(inN+"/a", bearing("late")); got.Status != http.StatusServiceUnavailable {
		t.Errorf("while upstream says nothing: %d %s", got.Status, got.Body)
	}
}

// A request that comes while too many reviews are under way is refused with a 429, and does not
// pass through (D13).
func TestARequestBeyondTheReviewsIsRefusedWith429(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{access: true, reviews: 1})
	r.people()
	resume := r.reviews.Stall()
	defer resume()
	var all sync.WaitGroup
	answers := make(chan *rawclient.ListResult, 10)
	for i := range cap(answers) { // one review at a time, and none of them ends: 5 s each
		all.Go(func() { answers <- r.list(inN+"?resourceVersion=0", bearing(fmt.Sprintf("made-up-%d", i))) })
	}
	all.Wait()
	close(answers)
	codes := map[int]int{}
	for a := range answers {
		codes[a.Status]++
		if after, _ := strconv.Atoi(a.Header.Get("Retry-After")); a.Status == http.StatusTooManyRequests &&
			(after < 1 || after > apistatus.RetrySpread || string(a.Body) != apistatus.TooManyRequestsText) {
			t.Errorf("Retry-After %d, %s", after, a.Body)
		}
	}
	if codes[http.StatusTooManyRequests] < 5 || codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests]+
		codes[http.StatusOK] != cap(answers) {
		t.Errorf("answers: %v", codes)
	}
}
