package authorization

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"spillway/internal/auth"
	"spillway/internal/auth/rbac"
	"spillway/internal/auth/reauth"
	"spillway/internal/object"
	"spillway/internal/upstream"
	"spillway/internal/upstream/probes"
	"spillway/internal/upstream/transport"
	"spillway/test/framework/controlplane"
)

// patience is how long a slow machine may take for what takes a moment.
const patience = time.Minute

// rightsWatcher watches rights in front of a real API server, and decides by them. The requests of
// its own watches are counted apart from reviews.
type rightsWatcher struct {
	rights  *rbac.LocalAuthorizer
	authn   *auth.Authenticator
	authz   *auth.Authorizer // decides by rights, as does the Reauthorizer
	asks    *auth.Authorizer // reviews everything upstream
	reviews *countingTransport
	deaf    atomic.Bool // tables receive nothing, as if their watch was quiet
	withheldEvents
	stop func()
}

// countingTransport is a transport that counts reviews.
type countingTransport struct {
	http.RoundTripper
	tokens, accesses atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		c.tokens.Add(1)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		c.accesses.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// what the control plane's API server takes for its own, because it is its issuer
const apiAudience = "https://kubernetes.default.svc"

// watchRights watches until the test ends.
func (w *world) watchRights(t *testing.T, sweep time.Duration,
	change func(*rbac.LocalAuthorizerOptions)) (*rightsWatcher,
	*reauth.Reauthorizer) {
	t.Helper()
	config := w.cp.Config(controlplane.Admin)
	transports, err := transport.New(transport.ConfigSource{Config: config}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		t.Fatal(err)
	}
	own, err := transports.Own(transport.Passing)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(w.cp.URL())
	if err != nil {
		t.Fatal(err)
	}
	m := &rightsWatcher{reviews: &countingTransport{RoundTripper: own}}
	reviewer := auth.NewReviewer(base, m.reviews, zap.NewNop())
	o := rbac.LocalAuthorizerOptions{
		Follow: func(ctx context.Context, table *rbac.PermissionTable) error {
			return client.Follow(ctx, zap.NewNop(), table.Resource(), &eventFilter{table, &m.deaf, &m.withheldEvents, w.planted},
				upstream.WithPromised(table.Through))
		},
		ProveThrough: func(ctx context.Context, r *object.Resource, from uint64) (last, reached uint64, err error) {
			return probes.New(client, r).ProveThrough(ctx, from)
		},
		Reviewer: reviewer,
	}
	if change != nil {
		change(&o)
	}
	m.rights = rbac.NewLocalAuthorizer(o)
	m.authn = auth.NewAuthenticator(auth.AuthenticatorOptions{Reviewer: reviewer, Audiences: []string{apiAudience},
		Local: m.rights})
	m.authz = auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: reviewer, Local: m.rights})
	m.asks = auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: auth.NewReviewer(base, own, zap.NewNop())})
	r := reauth.NewReauthorizer(reauth.ReauthorizerOptions{Authenticator: m.authn, Authorizer: m.authz, Sweep: sweep})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = m.rights.Run(ctx, r.Check) })
	all.Go(func() { _ = r.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		client.Close()
	})
	t.Cleanup(m.stop)
	return m, r
}

// eventFilter delivers the events of its resource to a table, or withholds them; and adds to each
// complete state a binding that upstream does not have.
type eventFilter struct {
	*rbac.PermissionTable
	deaf    *atomic.Bool
	holds   *withheldEvents
	planted func(bindings *object.Resource, rv uint64) (*object.Object, error) // nil for none
}

func (e *eventFilter) Replace(objects []*object.Object, rv uint64) error {
	if e.planted != nil && e.Resource().GVR.Resource == "clusterrolebindings" {
		one, err := e.planted(e.Resource(), rv)
		if err != nil {
			return err
		}
		objects = slices.Concat(objects, []*object.Object{one})
	}
	return e.PermissionTable.Replace(objects, rv)
}

func (e *eventFilter) Add(o *object.Object) error {
	return e.unless(func() error { return e.PermissionTable.Add(o) })
}
func (e *eventFilter) Update(o *object.Object) error {
	return e.unless(func() error { return e.PermissionTable.Update(o) })
}
func (e *eventFilter) Delete(o *object.Object) error {
	return e.unless(func() error { return e.PermissionTable.Delete(o) })
}
func (e *eventFilter) Bookmark(b *object.Bookmark, rv uint64) error {
	return e.unless(func() error { return e.PermissionTable.Bookmark(b, rv) })
}

func (e *eventFilter) unless(f func() error) error {
	e.holds.wait(e.Resource().GVR.Resource)
	if e.deaf.Load() {
		return nil
	}
	return f()
}

// decider decides by rights, and by reviews of its own, which it counts. Not safe for concurrent
// use.
type decider struct {
	authz   *auth.Authorizer
	reviews *countingTransport
}

func (m *rightsWatcher) decider(w *world) *decider {
	d := &decider{reviews: &countingTransport{RoundTripper: m.reviews.RoundTripper}}
	base, _ := url.Parse(w.cp.URL())
	d.authz = auth.NewAuthorizer(auth.AuthorizerOptions{Reviewer: auth.NewReviewer(base, d.reviews, zap.NewNop()),
		Local: m.rights})
	return d
}

// decide reports whether it took no review. The question is new, so that no cached review answers
// it.
func (d *decider) decide(t *testing.T, who *auth.Identity, what auth.Attributes) (auth.Decision, bool) {
	before := d.reviews.accesses.Load()
	another := who.UserInfo()
	another.UID = fmt.Sprint("asked-", before, time.Now().UnixNano())
	decision := d.authz.Authorize(t.Context(), auth.NewIdentity(another), what)
	return decision, d.reviews.accesses.Load() == before
}

// await waits until something is so.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", patience, what)
		}
	}
}

// questions makes up users and what each requests.
type questions struct{ *rand.Rand }

func (q questions) pick(from ...string) string { return from[q.IntN(len(from))] }

func (q questions) some(from ...string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(string) bool { return q.IntN(len(from)) > 1 })
}

func (q questions) namespace() string { return q.pick("default", "c1", "c2") }
func (q questions) person() string    { return q.pick("ann", "ben", "cid", "dot", "eve") }

// rule may be about resources or about paths, and is one that upstream takes.
func (q questions) rule() rbacv1.PolicyRule {
	verbs := append(q.some("get", "list", "watch", "create", "delete", "*"), q.pick("get", "list", "watch"))
	if q.IntN(6) == 0 {
		return rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: append(q.some("/metrics", "/healthz/*", "/*", "/api*"),
			"/version/*")}
	}
	return rbacv1.PolicyRule{
		Verbs: verbs, APIGroups: append(q.some("", "apps", "*"), q.pick("", "apps")),
		Resources: append(q.some("pods", "pods/log", "*/status", "deployments", "configmaps", "*", "pods/*"),
			q.pick("pods", "configmaps", "deployments")),
		ResourceNames: q.some("a", "b", "", "", "", "")[:min(1, q.IntN(3))],
	}
}

func (q questions) rules() []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 1+q.IntN(3))
	for i := range rules {
		rules[i] = q.rule()
		rules[i].ResourceNames = slices.DeleteFunc(rules[i].ResourceNames, func(name string) bool { return name == "" })
	}
	return rules
}

func (q questions) subjects() []rbacv1.Subject {
	subjects := make([]rbacv1.Subject, 1+q.IntN(2))
	for i := range subjects {
		switch q.IntN(3) {
		case 0:
			subjects[i] = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: q.person()}
		case 1:
			subjects[i] = rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
				Name: q.pick("dev", "ops", "qa", "system:serviceaccounts:c1")}
		default:
			subjects[i] = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: q.namespace(), Name: q.pick("r1", "r2")}
		}
	}
	return subjects
}

// identity is a user, which need not exist.
func (q questions) identity() *auth.Identity {
	if q.IntN(3) == 0 {
		home := q.namespace()
		return auth.NewIdentity(authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + home + ":" + q.pick("r1", "r2", "r3"),
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"},
		})
	}
	return auth.NewIdentity(authenticationv1.UserInfo{Username: q.person(),
		Groups: q.some("dev", "ops", "qa", "system:authenticated", "system:masters-not")})
}

// target is the attributes of a request.
func (q questions) target() auth.Attributes {
	if q.IntN(8) == 0 {
		return auth.Attributes{Verb: q.pick("get", "post"), Path: q.pick("/metrics", "/metrics/x", "/healthz",
			"/healthz/ping", "/version/", "/version", "/apis", "/foo")}
	}
	a := auth.Attributes{
		Verb: q.pick("get", "list", "watch", "create", "delete", "patch", "*"), Version: "v1",
		Group:    q.pick("", "", "apps", "batch"),
		Resource: q.pick("pods", "configmaps", "deployments", "secrets", "*"), Namespace: q.pick("", "default", "c1", "c2",
			"c3"),
	}
	if q.IntN(2) == 0 {
		a.Name = q.pick("a", "b", "c")
	}
	if q.IntN(4) == 0 {
		a.Subresource = q.pick("log", "status", "*")
	}
	if q.IntN(4) == 0 {
		a.FieldSelector, a.LabelSelector = "metadata.name=a", "x=y"
	}
	return a
}

// grants makes roles and bindings at random, and binds "last" to a permission that no other user
// has once all is made.
func (w *world) grants(t *testing.T, q questions, most int) {
	t.Helper()
	ctx, create := t.Context(), metav1.CreateOptions{}
	rbac := w.admin.RbacV1()
	for _, name := range []string{"c1", "c2"} {
		if _, err := w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			create); err != nil {
			t.Fatal(err)
		}
	}
	for i := range most {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("random-", i)}
		var err error
		switch namespace := q.namespace(); q.IntN(7) {
		case 0, 1:
			_, err = rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: onlyResources(q.rules())}, create)
		case 2:
			_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: q.rules()}, create)
		case 3, 4, 5:
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: q.pick("Role", "Role", "ClusterRole"),
				Name: fmt.Sprint("random-", q.IntN(most))}
			_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: q.subjects(),
				RoleRef: ref}, create)
		default:
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprint("random-", q.IntN(most))}
			_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: q.subjects(),
				RoleRef: ref}, create)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.settle(t)
}

// onlyResources leaves out what a Role cannot have.
func onlyResources(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.NonResourceURLs) > 0 })
}

// settle waits until upstream's authorizer has received all that was made before: it knows of a
// role and both bindings that were made after.
func (w *world) settle(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	name := fmt.Sprint("marker-", time.Now().UnixNano())
	meta, rules := metav1.ObjectMeta{Name: name}, []rbacv1.PolicyRule{rule("get", "", "markers")}
	subjects := func(user string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	}
	rbac, create := w.admin.RbacV1(), metav1.CreateOptions{}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	if _, err := rbac.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects("one"),
		RoleRef: ref("Role")}, create); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(
		ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects("two"), RoleRef: ref("ClusterRole")},
		create); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"one", "two"} {
		await(t, "known to upstream", func() bool {
			review, err := w.admin.AuthorizationV1().SubjectAccessReviews().Create(
				ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get",
						Resource: "markers"},
				}}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		})
	}
}

// TestLocalRBAC decides 10,000 random questions by a random set of roles and bindings, here and
// upstream. Nothing may be allowed here that upstream denies.
func TestLocalRBAC(t *testing.T) {
	const many = 10_000
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	q := questions{rand.New(rand.NewPCG(seed, 1))}
	w.grants(t, q, 200)
	m, _ := w.watchRights(t, 0, func(o *rbac.LocalAuthorizerOptions) {
		o.RBAC, o.Random = true, func() float64 { return 1 }
	})
	admin := auth.NewIdentity(authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}})
	first := m.decider(w)
	await(t, "decided here", func() bool {
		_, here := first.decide(t, admin, auth.Attributes{Verb: "get", Version: "v1", Resource: "pods", Namespace: "default"})
		return here
	})
	type asked struct {
		who  *auth.Identity
		what auth.Attributes
	}
	all := make([]asked, many)
	var local, allowed, wrong, missed atomic.Int64
	for i := range all {
		all[i] = asked{q.identity(), q.target()}
	}
	var workers sync.WaitGroup
	for part := range slices.Chunk(all, many/8) {
		workers.Go(func() {
			d := m.decider(w)
			for _, one := range part {
				decision, here := d.decide(t, one.who, one.what)
				yes := decision.Verdict == auth.Allowed
				switch {
				case decision.Verdict == auth.Unreviewed:
					t.Errorf("%+v, %+v: %v", one.who, one.what, decision.Err)
				case here:
					local.Add(1)
					if there := m.asks.Authorize(t.Context(), one.who, one.what); there.Verdict != auth.Allowed {
						wrong.Add(1)
						t.Errorf("%s here, %s upstream: %+v, %+v", decision.Verdict, there.Verdict, one.who, one.what)
					}
				case yes && missed.Add(1) <= 3:
					t.Logf("allowed by upstream alone: %+v, %+v", one.who, one.what)
				}
				if yes {
					allowed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d questions: %d allowed here, %d allowed by upstream, %d here that upstream denies, %d by upstream alone",
		many, local.Load(), allowed.Load(), wrong.Load(), missed.Load())
	if local.Load() < many/100 {
		t.Error("hardly anything was decided here")
	}
}

// Tables whose watches receive nothing decide nothing.
func TestStaleTablesDecideNothing(t *testing.T) {
	w := newWorld(t)
	w.serviceAccount(t, "default", "reads-pods", false, rule("get,list,watch", "", "pods"))
	m, _ := w.watchRights(t, 0, func(o *rbac.LocalAuthorizerOptions) {
		o.RBAC, o.Random = true, func() float64 { return 1 }
	})
	d := m.decider(w)
	who := auth.NewIdentity(authenticationv1.UserInfo{Username: "system:serviceaccount:default:reads-pods",
		Groups: []string{"system:authenticated"}})
	what := auth.Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "default"}
	decide := func(want auth.Verdict) bool {
		decision, here := d.decide(t, who, what)
		if decision.Verdict != want {
			t.Fatalf("%s (%v), want %s", decision.Verdict, decision.Err, want)
		}
		return here
	}
	w.settle(t)
	await(t, "decided here", func() bool { return decide(auth.Allowed) })
	m.deaf.Store(true)
	if err := w.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "reads-pods",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone, last := time.Now(), time.Time{}
	await(t, "denied by upstream", func() bool {
		asked := time.Now()
		decision, here := d.decide(t, who, what)
		switch {
		case !here:
			return decision.Verdict == auth.Denied && time.Since(gone) > 2*auth.AnswerTTL
		case decision.At.After(gone):
			t.Fatalf("allowed by what is said to be known since %v after it had gone", decision.At.Sub(gone))
		case asked.Sub(decision.At) >= auth.AnswerTTL:
			t.Fatalf("allowed by what was proven %v ago", asked.Sub(decision.At))
		}
		last = asked
		return false
	})
	t.Logf("decided here by what was proven before for %v after the binding had gone unheard", last.Sub(gone))
}

// TestPlantedDisagreement puts an authorizer before RBAC that cannot be seen from outside: a
// webhook would. Here the rules that decide are not upstream's.
func TestPlantedDisagreement(t *testing.T) {
	w := newWorld(t)
	w.planted = eveIsAdmin
	core, logs := observer.New(zap.ErrorLevel)
	m, _ := w.watchRights(t, 0, func(o *rbac.LocalAuthorizerOptions) {
		o.RBAC, o.Log, o.Random = true, zap.New(core), func() float64 { return 0 } // all is checked
	})
	d := m.decider(w)
	eve := auth.NewIdentity(authenticationv1.UserInfo{Username: "eve", Groups: []string{"system:authenticated"}})
	what := auth.Attributes{Verb: "list", Version: "v1", Resource: "secrets"}
	// Upstream denies every such review, so that the verdict shows which side decided: the check of
	// the very first decision may have reached upstream already by the time that decide counts.
	await(t, "decided here, by the planted binding", func() bool {
		decision, _ := d.decide(t, eve, what)
		return decision.Verdict == auth.Allowed
	})
	planted := time.Now()
	await(t, "left to upstream", func() bool {
		decision, _ := d.decide(t, eve, what)
		return decision.Verdict == auth.Denied
	})
	t.Logf("upstream decides %v after the first wrong decision", time.Since(planted))
	// In doubt at first, and for good as soon as the tables have been proven again.
	for decided := false; !decided; time.Sleep(100 * time.Millisecond) {
		decided = logs.Len() > 0
		if decision, here := d.decide(t, eve, what); here || decision.Verdict != auth.Denied {
			t.Fatalf("decided here: %v, %s", here, decision.Verdict)
		}
		if time.Since(planted) > patience {
			t.Fatal("it is not for good")
		}
	}
	t.Logf("for good after %v: %s", time.Since(planted), logs.All()[0].Message)
	admin := auth.NewIdentity(authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}})
	if decision, here := d.decide(t, admin, what); here || decision.Verdict != auth.Allowed {
		t.Errorf("an admin, decided here: %v, %s", here, decision.Verdict)
	}
}

// eveIsAdmin is a binding that upstream does not have.
func eveIsAdmin(bindings *object.Resource, rv uint64) (*object.Object, error) {
	return bindings.Parse(
		fmt.Appendf(nil, `{"kind":"ClusterRoleBinding","apiVersion":"rbac.authorization.k8s.io/v1",`+
			`"metadata":{"name":"planted","resourceVersion":"%d"},`+
			`"subjects":[{"kind":"User","name":"eve"}],"roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`, rv))
}

// TestChangedRightsEndWatchesBeforeTheSweep takes away a binding, a role's rule, a service account
// and a pod while the sweep is slowed to ten minutes.
func TestChangedRightsEndWatchesBeforeTheSweep(t *testing.T) {
	w := newWorld(t)
	w.populate(t)
	ctx := t.Context()
	pod, err := w.admin.CoreV1().Pods("c1").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{ServiceAccountName: "reads-one", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.people = append(w.people, w.bound(t, "c1", "reads-one", pod))
	m, r := w.watchRights(t, 10*time.Minute, func(o *rbac.LocalAuthorizerOptions) { o.Tokens = rbac.TokensPods })
	watch := func(name, target string) *ending {
		i := slices.IndexFunc(w.people, func(p credentialedUser) bool { return p.name == name })
		result := m.authn.Authenticate(ctx, w.people[i].shows)
		path, query, _ := strings.Cut(target, "?")
		what, _ := auth.AttributesOf(http.MethodGet, path, query)
		d := m.authz.Authorize(ctx, result.Identity, what)
		if d.Verdict != auth.Allowed {
			t.Fatalf("%s may not %s: %+v", name, target, d)
		}
		e := &ending{done: make(chan struct{})}
		r.Admit(result, what, d, e)
		return e
	}
	await(t, "verified here", func() bool {
		before := m.reviews.tokens.Load()
		m.authn.Authenticate(ctx, w.bound(t, "c1", "reads-one", pod).shows)
		return m.reviews.tokens.Load() == before
	})
	const one = "/api/v1/namespaces/c1/configmaps?watch=1&fieldSelector=metadata.name%3Da"
	streams := map[string]*ending{
		"binding":                watch("reads-pods", "/api/v1/namespaces/default/pods?watch=1"),
		"rule of a cluster role": watch("reads-nodes", "/api/v1/nodes?watch=1"),
		"service account":        watch("watches", "/api/v1/namespaces/c1/configmaps?watch=1"),
		"pod":                    watch("reads-one in p", one),
	}
	stays := watch("reads-one", one)
	await(t, "hearing of all that is watched", func() bool { // what went before a table began is no change
		return !slices.ContainsFunc(m.rights.Tables(), func(table *rbac.PermissionTable) bool { return table.Through() == 0 })
	})
	grace := int64(0)
	for _, step := range []struct {
		what string
		want reauth.End
		take func() error
	}{
		{"binding", reauth.EndForbidden, func() error {
			return w.admin.RbacV1().RoleBindings("default").Delete(ctx, "reads-pods", metav1.DeleteOptions{})
		}},
		{"rule of a cluster role", reauth.EndForbidden, func() error {
			role, err := w.admin.RbacV1().ClusterRoles().Get(ctx, "reads-nodes", metav1.GetOptions{})
			if err == nil {
				role.Rules = role.Rules[1:]
				_, err = w.admin.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
			}
			return err
		}},
		{"service account", reauth.EndUnauthenticated, func() error {
			return w.admin.CoreV1().ServiceAccounts("c1").Delete(ctx, "watches", metav1.DeleteOptions{})
		}},
		{"pod", reauth.EndUnauthenticated, func() error {
			return w.admin.CoreV1().Pods("c1").Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &grace})
		}},
	} {
		left := time.Now()
		if err := step.take(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-streams[step.what].done:
			t.Logf("%s: ended %q after %v", step.what, streams[step.what].why, streams[step.what].at.Sub(left))
			if streams[step.what].why != step.want {
				t.Errorf("%s: ended %q, want %q", step.what, streams[step.what].why, step.want)
			}
		case <-time.After(patience):
			t.Fatalf("%s: still watches", step.what)
		}
	}
	select {
	case <-stays.done:
		t.Errorf("another one was ended, too: %q", stays.why)
	default:
	}
}

// bound is a user with a token of a service account that is bound to a pod.
func (w *world) bound(t *testing.T, namespace, account string, pod *corev1.Pod) credentialedUser {
	t.Helper()
	token, err := w.admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.cp.Config(controlplane.Admin))
	config.BearerToken = token.Status.Token
	w.add(t, account+" in "+pod.Name, config)
	p := w.people[len(w.people)-1]
	w.people = w.people[:len(w.people)-1]
	return p
}

// TestLocalTokensProveUpstreamsIdentities compares the identity that a token proves, here and
// upstream, and counts what a herd of new tokens costs.
func TestLocalTokensProveUpstreamsIdentities(t *testing.T) {
	const herd = 200
	w := newWorld(t)
	w.populate(t)
	ctx := t.Context()
	node, err := w.cp.MakeNode(ctx, "n1")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := w.admin.CoreV1().Pods("c1").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{NodeName: node.Name, ServiceAccountName: "reads-one",
			Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := w.watchRights(t, 0, func(o *rbac.LocalAuthorizerOptions) {
		o.Tokens, o.Random = rbac.TokensPods, func() float64 { return 1 }
	})
	tokens := []credentialedUser{w.bound(t, "c1", "reads-one", pod)}
	for range herd {
		tokens = append(tokens, w.bound(t, "c1", "reads-one", pod))
	}
	for _, p := range w.people {
		if strings.HasPrefix(p.name, "reads") {
			tokens = append(tokens, p)
		}
	}
	show := func(p credentialedUser) (auth.Result, bool) {
		before := m.reviews.tokens.Load()
		result := m.authn.Authenticate(ctx, p.shows)
		return result, m.reviews.tokens.Load() == before
	}
	await(t, "verified here", func() bool {
		_, here := show(w.bound(t, "c1", "reads-one", pod))
		return here
	})
	before, began := m.reviews.tokens.Load(), time.Now()
	for i, p := range tokens {
		result, here := show(p)
		if !here || result.Outcome != auth.Authenticated {
			t.Fatalf("%s: %s (%v), verified here: %v", p.name, result.Outcome, result.Err, here)
		}
		if i == 0 || i > herd {
			w.compareIdentity(t, p, result.Identity)
		}
	}
	t.Logf("%d tokens, %d reviews, %v", len(tokens), m.reviews.tokens.Load()-before, time.Since(began))
	// A token for another audience is upstream's to judge, and it judges as for the others.
	other, err := w.admin.CoreV1().ServiceAccounts("c1").CreateToken(ctx, "reads-one", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stranger := credentialedUser{
		shows: auth.AuthnRequest{Header: http.Header{"Authorization": {"Bearer " + other.Status.Token}}},
	}
	if result, here := show(stranger); here || result.Outcome != auth.Refused {
		t.Errorf("for another audience: %s, verified here: %v", result.Outcome, here)
	}
	// What a token is bound to goes, and with it the token.
	grace := int64(0)
	if err := w.admin.CoreV1().Pods("c1").Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	await(t, "refused", func() bool {
		result, _ := show(tokens[1])
		return result.Outcome == auth.Refused
	})
	t.Logf("a token was refused %v after its pod had gone", time.Since(left))
}
