// Package authorization authenticates users and checks their rights at a real kube-apiserver, once
// as the proxy does (internal/auth) and once by sending the request itself, and compares:
// identities, decisions, and the message of each refusal (W-22, W-174). It also takes rights away
// while watches run by them.
package authorization

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/auth/reauth"
	"spillway/internal/object"
	"spillway/test/framework/controlplane"
)

// world is a control plane, and clients of it with the rights of an admin.
type world struct {
	cp     *controlplane.ControlPlane
	admin  *kubernetes.Clientset
	authn  *auth.Authenticator
	authz  *auth.Authorizer
	people []credentialedUser

	// added to what the tables hold; nil: nothing
	planted func(bindings *object.Resource, rv uint64) (*object.Object, error)
}

// credentialedUser is a user with credentials.
type credentialedUser struct {
	name   string
	config *rest.Config
	shows  auth.AuthnRequest
}

func newWorld(t *testing.T) *world { return newWorldWith(t, controlplane.Options{}) }

func newWorldWith(t *testing.T, o controlplane.Options) *world {
	t.Helper()
	o.Log = t.Output()
	cp, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	w := &world{cp: cp}
	config := cp.Config(controlplane.Admin)
	config.QPS = -1
	if w.admin, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	own, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(cp.URL())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, cp.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	clients, err := auth.NewAuthority(name, clock.RealClock{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	reviewer := auth.NewReviewer(base, own, zap.NewNop())
	w.authn = auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer, ClientCA: clients})
	w.authz = auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer})
	for _, user := range []controlplane.User{controlplane.Admin, controlplane.Alice, controlplane.Bob,
		controlplane.Carol} {
		w.add(t, string(user), cp.Config(user))
	}
	return w
}

// add adds a user with credentials.
func (w *world) add(t *testing.T, name string, config *rest.Config) {
	t.Helper()
	p := credentialedUser{name: name, config: config, shows: auth.AuthnRequest{Header: http.Header{}}}
	if config.BearerToken != "" {
		p.shows.Header.Set("Authorization", "Bearer "+config.BearerToken)
	} else {
		pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		p.shows.Peer = []*x509.Certificate{cert}
	}
	w.people = append(w.people, p)
}

// serviceAccount makes a service account with a token, and lets it do what the rules say, in its
// namespace or everywhere.
func (w *world) serviceAccount(t *testing.T, namespace, name string, everywhere bool, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx, create := t.Context(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: name}
	if _, err := w.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		create); err != nil {
		t.Fatal(err)
	}
	token, err := w.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{},
		create)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.cp.Config(controlplane.Admin))
	config.BearerToken = token.Status.Token
	w.add(t, name, config)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	rbac := w.admin.RbacV1()
	if everywhere {
		_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, create)
		if err == nil {
			_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
					Name: name},
			}, create)
		}
	} else {
		_, err = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, create)
		if err == nil {
			_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			}, create)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{group},
		Resources: strings.Split(resources, ","), ResourceNames: names}
}

// populate makes users with all sorts of rights.
func (w *world) populate(t *testing.T) {
	t.Helper()
	if _, err := w.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"default", "c1"} {
		if _, err := w.admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.serviceAccount(t, "default", "reads-pods", false, rule("get,list,watch", "", "pods"))
	w.serviceAccount(t, "c1", "reads-one", false, rule("get,list,watch", "", "configmaps", "a"))
	w.serviceAccount(t, "c1", "lists", false, rule("list", "", "configmaps,pods"))
	w.serviceAccount(t, "c1", "watches", false, rule("watch", "", "configmaps"), rule("get", "", "pods/log"))
	w.serviceAccount(t, "default", "reads-nodes", true, rule("get,list,watch", "", "nodes"),
		rule("get", "apps", "deployments/status"))
	w.serviceAccount(t, "default", "reads-apps", true, rule("*", "apps", "*"))
	w.serviceAccount(t, "c1", "reads-metrics", true,
		rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/healthz/*"}})
	w.serviceAccount(t, "c1", "nobody", false, rule("get", "", "bindings"))
	w.settle(t)
}

// targets are what is requested for each user.
func targets() []string {
	var all []string
	for _, path := range []string{
		"/api/v1/configmaps", "/api/v1/namespaces/c1/configmaps", "/api/v1/namespaces/default/configmaps",
		"/api/v1/namespaces/default/pods",
		"/api/v1/namespaces/c1/pods", "/api/v1/nodes", "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/c1/deployments",
		"/api/v1/secrets",
	} {
		for _, query := range []string{"", "?fieldSelector=metadata.name%3Da", "?labelSelector=x%3Dy",
			"?fieldSelector=metadata.name%21%3Da", "?limit=abc"} {
			all = append(all, path+query)
		}
		all = append(all, path+"?watch=1", path+"?watch=1&fieldSelector=metadata.name%3Da&labelSelector=x",
			path+"?watch=1&limit=abc&fieldSelector=metadata.name%3Da")
	}
	return append(all,
		"/api/v1/namespaces/c1/configmaps/a", "/api/v1/namespaces/c1/configmaps/b", "/api/v1/namespaces/default/configmaps/a",
		"/api/v1/nodes/n", "/api/v1/namespaces/c1",
		"/api/v1/namespaces", "/api/v1/namespaces/c1/status", "/api/v1/namespaces/c1/pods/p/log",
		"/api/v1/namespaces/c1/pods/p", "/apis/apps/v1/namespaces/c1/deployments/d/status",
		"/apis/apps/v1/namespaces/c1/deployments/d", "/api/v1/watch/namespaces/c1/configmaps/a",
		"/api/v1/watch/namespaces/c1/configmaps?fieldSelector=metadata.name%3Da",
		"/apis/example.com/v1/things", "/api/v1/unknown", "/metrics", "/healthz/ping", "/version", "/api", "/apis/apps/v1",
		"/foo", "/foo?a=%3Cb%3E", "/api/v1/namespaces/%3Cc%3E/pods",
	)
}

// TestDecisionsAndRefusalsMatchUpstream compares decisions and refusals for every user and every
// target.
func TestDecisionsAndRefusalsMatchUpstream(t *testing.T) {
	w := newWorld(t)
	w.populate(t)
	var cells, denied int
	for _, p := range w.people {
		transport, err := rest.TransportFor(p.config)
		if err != nil {
			t.Fatal(err)
		}
		result := w.authn.Authenticate(t.Context(), p.shows)
		if result.Outcome != auth.Authenticated {
			t.Fatalf("%s: %s (%v)", p.name, result.Outcome, result.Err)
		}
		w.compareIdentity(t, p, result.Identity)
		for _, target := range targets() {
			code, body := w.ask(t, transport, target)
			path, query, _ := strings.Cut(target, "?")
			what, ok := auth.AttributesOf(http.MethodGet, path, query)
			if !ok {
				t.Fatalf("%s is not asked about", target)
			}
			d := w.authz.Authorize(t.Context(), result.Identity, what)
			cells++
			switch {
			case d.Verdict == auth.Denied && code == http.StatusForbidden:
				denied++
				var ours, theirs metav1.Status
				ours = *auth.Forbidden(result.Identity, what, d.Reason)
				if err := json.Unmarshal(body, &theirs); err != nil || !reflect.DeepEqual(ours, theirs) {
					t.Errorf("%s, %s:\nours   %+v\ntheirs %s", p.name, target, ours, body)
				}
			case d.Verdict != auth.Allowed || code == http.StatusForbidden:
				t.Errorf("%s, %s: %s (%v), upstream: %d %s", p.name, target, d.Verdict, d.Err, code, body)
			}
		}
	}
	t.Logf("%d people, %d cells, %d of them denied", len(w.people), cells, denied)
	if denied < cells/4 || denied > cells*9/10 {
		t.Error("the matrix is lopsided")
	}
}

// ask sends a request and returns how it was answered; of a watch, no more than the head.
func (w *world) ask(t *testing.T, transport http.RoundTripper, target string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cp.URL()+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return resp.StatusCode, nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, bytes.TrimSpace(body)
}

// compareIdentity compares an identity with upstream's.
func (w *world) compareIdentity(t *testing.T, p credentialedUser, ours *auth.Identity) {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u, got := review.Status.UserInfo, ours.UserInfo()
	if got.Username != u.Username || got.UID != u.UID || !slices.Equal(got.Groups, u.Groups) ||
		len(got.Extra)+len(u.Extra) > 0 && !reflect.DeepEqual(got.Extra, u.Extra) {
		t.Errorf("%s:\nours   %+v\ntheirs %+v", p.name, ours, u)
	}
}

// ending is a stream that records when it was ended.
type ending struct {
	once sync.Once
	why  reauth.End
	at   time.Time
	done chan struct{}
}

func (*ending) Pause()  {}
func (*ending) Resume() {}
func (e *ending) End(why reauth.End) {
	e.once.Do(func() {
		e.why, e.at = why, time.Now()
		close(e.done)
	})
}

// TestLostRightsEndOnlyTheirWatches takes rights away while watches run by them: a binding, a
// service account. Each ends within 30 s, and no other.
func TestLostRightsEndOnlyTheirWatches(t *testing.T) {
	w := newWorld(t)
	w.populate(t)
	r := reauth.NewReauthorizer(reauth.ReauthorizerOptions{Authenticator: w.authn, Authorizer: w.authz})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	watch := func(name, target string) *ending {
		i := slices.IndexFunc(w.people, func(p credentialedUser) bool { return p.name == name })
		result := w.authn.Authenticate(ctx, w.people[i].shows)
		path, query, _ := strings.Cut(target, "?")
		what, _ := auth.AttributesOf(http.MethodGet, path, query)
		d := w.authz.Authorize(ctx, result.Identity, what)
		if d.Verdict != auth.Allowed {
			t.Fatalf("%s may not %s: %+v", name, target, d)
		}
		e := &ending{done: make(chan struct{})}
		r.Admit(result, what, d, e)
		return e
	}
	unbound, deleted := watch("reads-pods", "/api/v1/namespaces/default/pods?watch=1"),
		watch("watches", "/api/v1/namespaces/c1/configmaps?watch=1")
	stays := watch("reads-one", "/api/v1/namespaces/c1/configmaps?watch=1&fieldSelector=metadata.name%3Da")
	left := time.Now()
	for _, err := range []error{
		w.admin.RbacV1().RoleBindings("default").Delete(ctx, "reads-pods", metav1.DeleteOptions{}),
		w.admin.CoreV1().ServiceAccounts("c1").Delete(ctx, "watches", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	late := time.After(30 * time.Second)
	for name, c := range map[string]struct {
		*ending
		want reauth.End
	}{"unbound": {unbound, reauth.EndForbidden}, "deleted": {deleted, reauth.EndUnauthenticated}} {
		select {
		case <-c.done:
			t.Logf("%s: ended %q after %v", name, c.why, c.at.Sub(left))
			if c.why != c.want {
				t.Errorf("%s: ended %q, want %q", name, c.why, c.want)
			}
		case <-late:
			t.Fatalf("%s: still watches after 30 s", name)
		}
	}
	select {
	case <-stays.done:
		t.Errorf("another one was ended, too: %q", stays.why)
	default:
	}
}
