package rbac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
	"spillway/internal/auth/authtest"
	"spillway/internal/auth/reauth"
	"spillway/internal/auth/reauth/reauthtest"
	"spillway/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry is the API server's store as LocalAuthorizer sees it, inside a bubble: it tells tables
// of objects, and says how far it is. It is the cluster that answers reviews, too, and has
// documents.
type registry struct {
	*authtest.Cluster
	t *testing.T

	mu        sync.Mutex
	revision  uint64
	second    map[string]*uint64        // the counters of resources that are not in the first etcd
	objects   map[string]map[string]any // by resource and key
	events    map[string][]change       // by resource
	wake      chan struct{}
	cut       map[string]bool // resources whose watch is silent
	forbidden map[string]bool
	mute      bool            // nothing is proven
	mutes     map[string]bool // resources of which nothing is proven
	relists   map[string]bool // resources whose state is to be listed again
	follows   map[string]int
	documents map[string]string
	reads     map[string]int // of documents
}

// change is one event of a resource; object nil: deleted.
type change struct {
	rv     uint64
	key    string
	object any
}

func newRegistry(t *testing.T, c *authtest.Cluster) *registry {
	return &registry{
		Cluster: c, t: t, revision: 100, second: map[string]*uint64{}, objects: map[string]map[string]any{},
		events: map[string][]change{}, wake: make(chan struct{}),
		cut: map[string]bool{}, forbidden: map[string]bool{}, mutes: map[string]bool{},
		relists: map[string]bool{}, follows: map[string]int{}, documents: map[string]string{}, reads: map[string]int{},
	}
}

// do applies a change to the state, and wakes its followers.
func (g *registry) do(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.wake)
	g.wake = make(chan struct{})
}

// counted returns how often a resource was followed or a document read: by is follows or reads.
func (g *registry) counted(by map[string]int, what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return by[what]
}

// put stores an object.
func (g *registry) put(resource string, o metav1.Object) {
	g.do(func() { g.putLocked(resource, o) })
}

func (g *registry) putLocked(resource string, o metav1.Object) {
	rv := g.counter(resource)
	*rv++
	o.SetResourceVersion(fmt.Sprint(*rv))
	key := o.GetName()
	if o.GetNamespace() != "" {
		key = o.GetNamespace() + "/" + key
	}
	if g.objects[resource] == nil {
		g.objects[resource] = map[string]any{}
	}
	g.objects[resource][key] = o
	g.events[resource] = append(g.events[resource], change{*rv, key, o})
}

// counter is the revision of the etcd that a resource is in.
func (g *registry) counter(resource string) *uint64 {
	if second := g.second[resource]; second != nil {
		return second
	}
	return &g.revision
}

// remove deletes an object.
func (g *registry) remove(resource, key string) {
	g.do(func() {
		rv := g.counter(resource)
		*rv++
		if _, ok := g.objects[resource][key]; !ok {
			g.t.Errorf("there is no %s %s", resource, key)
		}
		delete(g.objects[resource], key)
		g.events[resource] = append(g.events[resource], change{*rv, key, nil})
	})
}

var errNotAllowed = errors.New("upstream: forbidden")

// follow tells a table of its resource until ctx ends.
func (g *registry) follow(ctx context.Context, t *PermissionTable) error {
	name := t.Resource().GVR.Resource
	g.mu.Lock()
	g.follows[name]++
	forbidden := g.forbidden[name]
	g.mu.Unlock()
	if forbidden {
		return errNotAllowed
	}
	for {
		if err := g.tell(ctx, t, name); err != nil {
			return err
		}
	}
}

// tell is the reflector of a table: it lists the state and delivers events until a relist is due.
func (g *registry) tell(ctx context.Context, t *PermissionTable, name string) error {
	g.mu.Lock()
	g.relists[name] = false
	told := *g.counter(name)
	var all []*object.Object
	for _, o := range g.objects[name] {
		all = append(all, g.parse(t, o))
	}
	g.mu.Unlock()
	if err := t.Replace(all, told); err != nil {
		return err
	}
	for {
		g.mu.Lock()
		if g.relists[name] {
			g.mu.Unlock()
			return nil
		}
		wake := g.wake
		var fresh []change
		if !g.cut[name] {
			fresh = slices.DeleteFunc(slices.Clone(g.events[name]), func(c change) bool { return c.rv <= told })
		}
		g.mu.Unlock()
		for _, c := range fresh {
			told = c.rv
			var err error
			if c.object == nil {
				err = t.Delete(g.parse(t, gone(c)))
			} else {
				err = t.Update(g.parse(t, c.object))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gone is the last state of what was deleted.
func gone(c change) any {
	namespace, name, ok := strings.Cut(c.key, "/")
	if !ok {
		namespace, name = "", c.key
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		ResourceVersion: fmt.Sprint(c.rv)}}
}

func (g *registry) parse(t *PermissionTable, o any) *object.Object {
	raw, err := json.Marshal(o)
	if err != nil {
		g.t.Fatal(err)
	}
	parsed, err := t.Resource().Parse(raw)
	if err != nil {
		g.t.Fatal(err)
	}
	return parsed
}

var errMute = errors.New("upstream says nothing")

// through says how far the store is, a second later, as the API server's bookmarks come.
func (g *registry) through(ctx context.Context, r *object.Resource, from uint64) (uint64, uint64, error) {
	g.mu.Lock()
	rv, last, mute := *g.counter(r.GVR.Resource), from, g.mute || g.mutes[r.GVR.Resource]
	for _, c := range g.events[r.GVR.Resource] {
		last = max(last, c.rv)
	}
	g.mu.Unlock()
	if mute {
		return 0, 0, errMute
	}
	if err := authtest.Wait(ctx, time.Second); err != nil {
		return 0, 0, err
	}
	return last, rv, nil
}

// RoundTrip implements http.RoundTripper.
func (g *registry) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return g.Cluster.RoundTrip(r)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads[r.URL.Path]++
	code, text := http.StatusOK, g.documents[r.URL.Path]
	if text == "" {
		code = http.StatusNotFound
	}
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(text))),
		Request: r}, nil
}

// guard is a model whose rights are watched.
type guard struct {
	patrol *reauthtest.Model
	*registry
	authn  *auth.Authenticator
	authz  *auth.Authorizer
	rights *LocalAuthorizer
	review auth.ReviewFunc[auth.ReviewRequest, auth.AccessStatus] // has the API server answer
	gauges *prometheus.Registry
	log    *observer.ObservedLogs
	random float64 // what Random returns
	began  time.Time
	mu     sync.Mutex
}

// Tokens implements auth.LocalDecider.
func (g *guard) Tokens(audiences []string, remembered int,
	review auth.ReviewFunc[auth.Secret, auth.TokenVerdict]) auth.DecideFunc[auth.Secret, auth.TokenVerdict] {
	return g.rights.Tokens(audiences, remembered, review)
}

// Access implements auth.LocalDecider.
func (g *guard) Access(
	review auth.ReviewFunc[auth.ReviewRequest, auth.AccessStatus],
) auth.DecideFunc[auth.ReviewRequest, auth.AccessStatus] {
	g.review = review
	return g.rights.Access(review)
}

// setup is what a test may change before its guard begins.
type setup struct {
	*reauthtest.Setup
	rights LocalAuthorizerOptions
}

// onGuard runs a test in a bubble, with rights watched and a Reauthorizer at work.
func onGuard(t *testing.T, change func(*guard, *setup), test func(*guard)) {
	t.Helper()
	var g *guard
	reauthtest.On(t, func(o *reauthtest.Setup) {
		core, logs := observer.New(zap.InfoLevel)
		g = &guard{registry: newRegistry(t, o.Cluster), gauges: prometheus.NewRegistry(), log: logs, random: 1}
		reviewer, metrics := o.Ask(g.registry), reauth.NewMetrics(g.gauges)
		s := &setup{Setup: o, rights: LocalAuthorizerOptions{Follow: g.follow, ProveThrough: g.through, Reviewer: reviewer,
			Metrics: NewMetrics(g.gauges), Log: zap.New(core), Random: g.chance}}
		o.Reauth.Random, o.Reauth.Metrics, o.Reauth.Sweep = func() float64 { return 0 }, metrics, 10*time.Minute
		if change != nil {
			change(g, s)
		}
		g.rights = NewLocalAuthorizer(s.rights)
		o.Authn.Local, o.Authz.Local, o.Authz.Clock = g, g, s.rights.Clock
	}, func(p *reauthtest.Model) {
		g.patrol, g.authn, g.authz, g.began = p, p.Authn, p.Authz, p.Began
		ctx, cancel := context.WithCancel(p.T.Context())
		done := make(chan error)
		go func() { done <- g.rights.Run(ctx, p.Check) }()
		time.Sleep(3 * time.Second) // the first proofs
		test(g)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (g *guard) chance() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.random
}

func (g *guard) checkEverything() { g.draws(0) }

// draws sets what Random returns.
func (g *guard) draws(random float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.random = random
}

// metric is the value of a metric with the given labels.
func (g *guard) metric(name string, labels ...string) float64 {
	g.patrol.T.Helper()
	families, err := g.gauges.Gather()
	if err != nil {
		g.patrol.T.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			named := 0
			for _, l := range m.GetLabel() {
				if slices.Contains(labels, l.GetValue()) {
					named++
				}
			}
			if named == len(labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() // it is one of the two
			}
		}
	}
	return 0
}

// grant binds a subject to a role of the same name, in one namespace or in the cluster.
func (g *guard) grant(namespace, name string, who rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if namespace == "" {
		g.put("clusterroles", &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
		g.put("clusterrolebindings", &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{who},
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}})
		return
	}
	g.put("roles", &rbacv1.Role{ObjectMeta: meta, Rules: rules})
	g.put("rolebindings", &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{who},
		RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name}})
}

// decide authorizes a request, and returns the decision and the number of access reviews it took.
func (g *guard) decide(who *auth.Identity, target string) (auth.Decision, int) {
	g.patrol.T.Helper()
	_, before := g.CountReviews()
	d := g.authz.Authorize(context.Background(), who, reauthtest.Wants(g.patrol.T, target))
	_, after := g.CountReviews()
	return d, after - before
}

// by checks the verdict on a request, and how many access reviews it took.
func (g *guard) by(who *auth.Identity, target string, want auth.Verdict, reviews int) auth.Decision {
	g.patrol.T.Helper()
	d, n := g.decide(who, target)
	if d.Verdict != want || n != reviews {
		g.patrol.T.Errorf("after %v: %s is %s by %d reviews, want %s by %d", time.Since(g.began), target, d.Verdict, n, want,
			reviews)
	}
	if d.Verdict == auth.Allowed && time.Since(d.At) >= auth.AnswerTTL {
		g.patrol.T.Errorf("%s was allowed by what was known %v ago", target, time.Since(d.At))
	}
	return d
}

func user(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "User", Name: name} }

func reads(resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: resources}
}

func byRBAC(_ *guard, s *setup) {
	s.rights.RBAC = true
}

// What roles allow is allowed without a review while they are proven; anything else is the API
// server's to decide, and a no of its own stands.
func TestLocalRBAC(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods"))
		time.Sleep(7 * time.Second)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 1) // the cluster allows all but what is denied
		g.Change(func() { g.Denied["bob secrets"] = true })
		g.by(reauthtest.Bob, "/api/v1/secrets", auth.Denied, 1)
		g.by(reauthtest.Named("eve"), "/api/v1/pods", auth.Allowed, 1)
		// What the API server has said since the last proof counts.
		g.Change(func() { g.Denied["bob pods"] = true })
		watch := reauthtest.Wants(t, "/api/v1/pods?watch=1")
		g.review(context.Background(), g.authz.Key(reauthtest.Bob, watch), auth.ReviewRequest{Identity: reauthtest.Bob,
			Attributes: watch})
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Denied, 0)
		g.Change(func() { g.Denied["bob pods"] = false })
		time.Sleep(auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		g.remove("clusterrolebindings", "pods")
		synctest.Wait()
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 1)
	})
}

// A right that no user ever had is not allowed by a role and a binding that were never there at the
// same time. Versions do not tell that: the two may be in two etcds, whose counters may stand
// anywhere.
func TestLocalRBACOfOneMoment(t *testing.T) {
	bind := func(all ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Subjects: all, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "x"},
		}
	}
	allow := func(resource string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Rules: []rbacv1.PolicyRule{reads(resource)}}
	}
	for what, c := range map[string]struct {
		before, missed, heard func(*guard)
		late, other           string // whose watch is late, and whose is not
	}{
		"a role that is bound only since it allows less": {
			before: func(g *guard) { g.put("clusterroles", allow("pods")) },
			missed: func(g *guard) { g.put("clusterroles", allow("nodes")) },
			heard:  func(g *guard) { g.put("clusterrolebindings", bind(user("bob"))) },
			late:   "clusterroles", other: "clusterrolebindings",
		},
		"a role that allows more since it is not bound": {
			before: func(g *guard) {
				g.put("clusterroles", allow("nodes"))
				g.put("clusterrolebindings", bind(user("bob")))
			},
			missed: func(g *guard) { g.put("clusterrolebindings", bind(user("eve"))) },
			heard:  func(g *guard) { g.put("clusterroles", allow("pods")) },
			late:   "clusterrolebindings", other: "clusterroles",
		},
	} {
		for where, second := range map[string]uint64{"in one etcd": 0, "with a counter between": 500, "behind": 5,
			"ahead": 1_000_000} {
			t.Run(what+" "+where, func(t *testing.T) {
				apart := func(g *guard, s *setup) {
					if s.rights.RBAC = true; second != 0 {
						g.second[c.other] = &second
					}
				}
				onGuard(t, apart, func(g *guard) {
					c.before(g)
					g.do(func() { g.revision += 1000 })
					time.Sleep(7 * time.Second)
					g.do(func() { g.cut[c.late] = true })
					c.missed(g)
					c.heard(g)
					g.Change(func() { g.Denied["bob pods"] = true })
					for n := range int(2 * auth.AnswerTTL / time.Second) {
						synctest.Wait()
						g.by(reauthtest.Bob, fmt.Sprintf("/api/v1/namespaces/n%d/pods", n), auth.Denied, 1)
						time.Sleep(time.Second)
					}
					g.do(func() { g.cut[c.late] = false })
					g.put("clusterroles", allow("services"))
					g.put("clusterrolebindings", bind(user("bob"), user("joe")))
					synctest.Wait()
					g.by(reauthtest.Bob, "/api/v1/services", auth.Allowed, 1) // it may be one of another moment
					time.Sleep(4 * time.Second)
					g.by(reauthtest.Bob, "/api/v1/services?watch=1", auth.Allowed, 0)
					labelled := allow("services")
					labelled.Labels = map[string]string{"app": "x"}
					g.put("clusterroles", labelled)
					synctest.Wait()
					g.by(reauthtest.Bob, "/api/v1/services?watch=true", auth.Allowed, 0) // as before
				})
			})
		}
	}
}

// That a right is not decided by for a moment, because its role has changed, does not explain why
// the API server denied it.
func TestLocalRBACDisagreementDuringAChange(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.checkEverything()
		g.grant("", "pods", user("bob"), reads("pods"))
		time.Sleep(time.Minute)
		g.Change(func() { g.Denied["bob pods"] = true }) // by an authorizer that cannot be seen
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		for n := range 20 {
			time.Sleep(time.Second)
			g.put("clusterroles", &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{reads("pods"), reads(fmt.Sprint("x", n))},
			})
			synctest.Wait()
			if g.metric("spillway_local_decisions_enabled", "access") != 0 {
				t.Fatalf("decides again after %d changes", n)
			}
		}
		time.Sleep(time.Minute)
		if n := g.metric("spillway_local_decision_disagreements_total", "access"); n != 1 {
			t.Errorf("%v disagreements", n)
		}
	})
}

// Once the API server is behind its own word, versions of before and after mean nothing to each
// other: all begin again, and once.
func TestLocalRBACRewrittenHistory(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods"))
		g.do(func() { g.revision += 1000 })
		time.Sleep(7 * time.Second)
		g.do(func() { g.revision = 500 })
		time.Sleep(2 * auth.AnswerTTL)
		for _, resource := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
			if n := g.counted(g.follows, resource); n != 2 {
				t.Errorf("%s listed %d times", resource, n)
			}
		}
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
	})
}

// A watch that hears of nothing proves nothing: once what is held has not been proven for ten
// seconds, the API server decides.
func TestLocalRBACStale(t *testing.T) {
	for _, resource := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
		onGuard(t, byRBAC, func(g *guard) {
			g.grant("", "pods", user("bob"), reads("pods"))
			time.Sleep(7 * time.Second)
			g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
			g.do(func() { g.cut[resource] = true })
			// which it does not hear of
			g.put(resource, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: "default"}})
			g.Change(func() { g.Denied["bob pods"] = true })
			time.Sleep(auth.AnswerTTL)
			g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Denied, 1)
			g.do(func() { g.cut[resource] = false })
			g.Change(func() { g.Denied["bob pods"] = false })
			time.Sleep(auth.AnswerTTL)
			g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		})
	}
	// Others' changes need no event of the watch's own; silence of the API server does harm.
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods"))
		time.Sleep(7 * time.Second)
		g.do(func() { g.revision += 1000 })
		time.Sleep(time.Minute)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		g.do(func() { g.mute = true })
		time.Sleep(auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 1)
	})
}

// An etcd that was restored is behind its own word: everything is listed again before it counts.
func TestLocalRBACAfterRestore(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods"))
		g.do(func() { g.revision += 1000 })
		time.Sleep(7 * time.Second)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		g.do(func() { // as it was before the grant
			g.revision = 50
			clear(g.objects)
			clear(g.events)
		})
		time.Sleep(auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 1)
		if n := g.counted(g.follows, "clusterrolebindings"); n != 2 {
			t.Errorf("listed %d times", n)
		}
	})
}

// Whichever table hears of a restore first, by a complete state, what is bound in one history is
// not allowed what a role allows in another: the others have to be proven again, too. Versions may
// have gone back (etcdutl snapshot restore), or ahead (--bump-revision).
func TestLocalRBACOfOneHistory(t *testing.T) {
	others := []string{"roles", "rolebindings", "clusterrolebindings"}
	for what, moved := range map[string]func(revision uint64) uint64{
		"back":  func(revision uint64) uint64 { return revision - 100 },
		"ahead": func(revision uint64) uint64 { return revision + 1000 },
	} {
		t.Run(what, func(t *testing.T) {
			onGuard(t, byRBAC, func(g *guard) {
				g.grant("", "x", user("bob"), reads("nodes"))
				g.do(func() { g.revision += 1000 })
				time.Sleep(7 * time.Second)
				g.by(reauthtest.Bob, "/api/v1/nodes?watch=1", auth.Allowed, 0)
				g.do(func() { // bob had not been bound yet, and the role allowed something else
					clear(g.events)
					clear(g.objects["clusterrolebindings"])
					role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Rules: []rbacv1.PolicyRule{reads("pods")}}
					role.ResourceVersion = "101"
					g.objects["clusterroles"]["x"] = role
					g.revision = moved(g.revision)
					g.relists["clusterroles"] = true
					for _, resource := range others {
						g.mutes[resource] = true // as the API server answers 410
					}
				})
				g.Change(func() { g.Denied["bob pods"] = true })
				for n := range int(auth.AnswerTTL / time.Second) {
					synctest.Wait()
					if d, _ := g.decide(reauthtest.Bob, fmt.Sprintf("/api/v1/namespaces/n%d/pods", n)); d.Verdict == auth.Allowed {
						t.Fatalf("after %v: allowed", time.Since(g.began))
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// That one of them was listed again costs the others a proof, and no list.
func TestLocalRBACAfterRelist(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "x", user("bob"), reads("pods"))
		time.Sleep(7 * time.Second)
		g.do(func() { g.relists["clusterroles"] = true })
		synctest.Wait()
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 1)
		time.Sleep(auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/pods?watch=1", auth.Allowed, 0)
		for _, t := range g.rights.rbacTables() {
			if n := g.counted(g.follows, t.resource.GVR.Resource); n != 1 {
				g.patrol.T.Errorf("%s was followed %d times", t.resource, n)
			}
		}
	})
}

// One answer of the API server's that denies what is allowed here is the last that is given here.
func TestLocalRBACDisagreement(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods", "nodes"))
		time.Sleep(time.Minute)
		g.checkEverything()
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 0)
		time.Sleep(time.Second)
		if g.metric("spillway_local_decision_checks_total", "agreed") != 1 ||
			g.metric("spillway_local_decisions_enabled", "access") != 1 {
			t.Error("the check did not agree")
		}
		g.Change(func() { g.Denied["bob pods"] = true }) // by an authorizer that cannot be seen
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		time.Sleep(time.Second)
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Denied, 0) // at once, by what the API server said
		time.Sleep(time.Hour)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 1)
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Denied, 1)
		if g.metric("spillway_local_decision_disagreements_total", "access") != 1 ||
			g.metric("spillway_local_decisions_enabled", "access") != 0 {
			t.Error("no metric tells of it")
		}
		if n := g.log.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("the log tells of it %d times", n)
		}
	})
}

// A right that went between the decision and its check is no disagreement; nor is one that the API
// server has not heard of yet.
func TestLocalRBACCrossedChange(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.checkEverything()
		g.grant("", "pods", user("bob"), reads("pods"))
		g.grant("", "nodes", user("bob"), reads("nodes"))
		time.Sleep(6 * time.Second)
		g.Change(func() { g.Denied["bob pods"] = true }) // the API server is late
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		time.Sleep(time.Second)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 1) // in doubt
		g.Change(func() { g.Denied["bob pods"] = false })
		time.Sleep(2 * auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 0)
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		time.Sleep(time.Minute)
		g.Change(func() { g.Denied["bob pods"] = true })
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		g.remove("clusterrolebindings", "pods") // we are late
		time.Sleep(2 * auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 0)
		if n := g.metric("spillway_local_decision_disagreements_total", "access"); n != 0 {
			t.Errorf("%v disagreements", n)
		}
		// An API server that stays late is another authorizer.
		g.grant("", "pods-again", user("bob"), reads("pods"))
		time.Sleep(2 * auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		time.Sleep(2 * auth.AnswerTTL)
		g.by(reauthtest.Bob, "/api/v1/nodes", auth.Allowed, 1)
		if n := g.metric("spillway_local_decision_disagreements_total", "access"); n != 1 {
			t.Errorf("%v disagreements", n)
		}
	})
}

// Of two denials at once, an explanation of one is none of the other.
func TestLocalRBACDoubts(t *testing.T) {
	for _, last := range []string{"pods", "nodes"} { // the resource of the last request
		onGuard(t, byRBAC, func(g *guard) {
			g.checkEverything()
			g.grant("", "pods", user("bob"), reads("pods"))
			g.grant("", "nodes", user("bob"), reads("nodes"))
			time.Sleep(6 * time.Second)
			g.Change(func() { g.Denied["bob pods"], g.Denied["bob nodes"] = true, true })
			first := map[string]string{"pods": "nodes", "nodes": "pods"}[last]
			g.by(reauthtest.Bob, "/api/v1/"+first, auth.Allowed, 0)
			g.by(reauthtest.Bob, "/api/v1/"+last, auth.Allowed, 0)
			g.remove("clusterrolebindings", "pods")
			time.Sleep(time.Minute)
			g.by(reauthtest.Bob, "/api/v1/services", auth.Allowed, 1)
			if n := g.metric("spillway_local_decision_disagreements_total", "access"); n != 1 {
				t.Errorf("%s last: %v disagreements", last, n)
			}
		})
	}
}

// One in a hundred is checked, and what would leave the checks behind is not decided here.
func TestLocalRBACChecksAreBounded(t *testing.T) {
	onGuard(t, byRBAC, func(g *guard) {
		g.grant("", "pods", user("bob"), reads("pods"))
		time.Sleep(7 * time.Second)
		g.draws(checkedShare)
		g.by(reauthtest.Bob, "/api/v1/pods", auth.Allowed, 0)
		time.Sleep(time.Second)
		if _, n := g.CountReviews(); n != 0 {
			t.Errorf("%d reviews", n)
		}
		g.checkEverything()
		g.Change(func() { g.Latency = func() time.Duration { return time.Second } })
		for range waitingChecksLimit + checkWorkers {
			synctest.Wait()
			if d, _ := g.decide(reauthtest.Bob, "/api/v1/pods"); d.Verdict != auth.Allowed {
				t.Errorf("got %+v", d)
			}
		}
		synctest.Wait()
		_, before := g.CountReviews()
		began := time.Now()
		g.decide(reauthtest.Bob, "/api/v1/pods?watch=1")
		if _, n := g.CountReviews(); time.Since(began) != time.Second || n == before {
			t.Errorf("decided after %v by %d reviews", time.Since(began), n-before)
		}
	})
}

// A change causes reviews at once of the watches that may have lost a right, and of no others. A
// right that is gained needs no review.
func TestChangesAreChecked(t *testing.T) {
	onGuard(t, nil, func(g *guard) {
		g.Change(func() { g.Groups["dave"] = []string{"dev"} })
		g.grant("", "pods", user("alice"), reads("pods"))
		g.grant("", "nodes", rbacv1.Subject{Kind: "Group", Name: "dev"}, reads("nodes"))
		g.grant("c1", "configmaps", user("carol"), reads("configmaps"))
		g.put("serviceaccounts",
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "robot", UID: "1"}})
		alice, carol, dave := g.patrol.Know("alice"), g.patrol.Know("carol"), g.patrol.Know("dave")
		robot := g.patrol.Know("system:serviceaccount:c1:robot")
		time.Sleep(time.Second)
		alices, _ := g.patrol.Watch(alice, "pods")
		daves, _ := g.patrol.Watch(dave, "nodes")
		carols, _ := g.patrol.Watch(carol, "namespaces/c1/configmaps")
		elsewhere, _ := g.patrol.Watch(carol, "namespaces/c2/configmaps")
		robots, _ := g.patrol.Watch(robot, "services")
		time.Sleep(time.Minute)
		lose := func(l *reauthtest.Live, name string, f func()) {
			t.Helper()
			_, before := g.CountReviews()
			left := time.Now()
			g.Change(func() { g.Denied[name] = true })
			f()
			time.Sleep(checkMinInterval)
			g.patrol.Expect(l, false, reauth.EndForbidden)
			if _, at := l.Ended(); at.Sub(left) > 50*time.Millisecond {
				t.Errorf("%s: it took %v", name, at.Sub(left))
			}
			if _, n := g.CountReviews(); n-before != 1 {
				t.Errorf("%s: %d reviews", name, n-before)
			}
			time.Sleep(time.Minute)
		}
		lose(alices, "alice pods", func() { g.remove("clusterrolebindings", "pods") })
		lose(daves, "dave nodes", func() {
			g.put("clusterroles", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}})
		})
		_, before := g.CountReviews()
		g.put("rolebindings", &rbacv1.RoleBinding{ // a label changes nothing
			ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "configmaps", Labels: map[string]string{"a": "b"}},
			Subjects:   []rbacv1.Subject{user("carol")}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "configmaps"},
		})
		g.grant("c1", "more", user("carol"), reads("pods"))
		time.Sleep(time.Minute)
		if _, n := g.CountReviews(); n != before {
			t.Errorf("%d reviews for nothing", n-before)
		}
		g.patrol.Expect(carols, true, "")
		// The API server caches for ten seconds that a token is good. The last recheck comes after that.
		g.authn.Authenticate(context.Background(), robot)
		g.Change(func() { delete(g.Users, "token-of-system:serviceaccount:c1:robot") })
		g.remove("serviceaccounts", "c1/robot")
		left := time.Now()
		time.Sleep(lastRecheckDelay + 2*recheckMergeWindow)
		latest := left.Add(lastRecheckDelay + recheckMergeWindow + time.Second)
		if end, at := robots.Ended(); end != reauth.EndUnauthenticated || at.After(latest) {
			t.Errorf("ended %q after %v", end, at.Sub(left))
		}
		g.patrol.Expect(elsewhere, true, "")
	})
}

// The API server's authorizer may hear of a change later than we do: that it still allows then is
// not the last word.
func TestChangesAreCheckedAgain(t *testing.T) {
	onGuard(t, nil, func(g *guard) {
		g.grant("", "pods", user("alice"), reads("pods"))
		alices, _ := g.patrol.Watch(g.patrol.Know("alice"), "pods")
		time.Sleep(time.Minute)
		g.remove("clusterrolebindings", "pods")
		time.Sleep(time.Second)
		g.patrol.Expect(alices, true, "")
		g.Change(func() { g.Denied["alice pods"] = true })
		time.Sleep(firstRecheckDelay + recheckMergeWindow)
		g.patrol.Expect(alices, false, reauth.EndForbidden)
	})
}

// A burst of changes is one check, or two.
func TestBurstOfChanges(t *testing.T) {
	onGuard(t, nil, func(g *guard) {
		alices, _ := g.patrol.Watch(g.patrol.Know("alice"), "pods")
		for i := range 100 {
			g.grant("", fmt.Sprint("role-", i), user("alice"), reads("pods"))
		}
		time.Sleep(time.Minute)
		_, before := g.CountReviews()
		for i := range 100 {
			g.remove("clusterrolebindings", fmt.Sprint("role-", i))
		}
		time.Sleep(time.Minute)
		if _, n := g.CountReviews(); n-before < 3 || n-before > 6 {
			t.Errorf("%d reviews", n-before)
		}
		g.patrol.Expect(alices, true, "")
	})
}

// Changes that a silent watch has not delivered are found when the state is listed again.
func TestChangesDuringAGap(t *testing.T) {
	onGuard(t, nil, func(g *guard) {
		g.grant("", "pods", user("alice"), reads("pods"))
		alices, _ := g.patrol.Watch(g.patrol.Know("alice"), "pods")
		time.Sleep(time.Minute)
		g.do(func() { g.cut["clusterrolebindings"] = true })
		g.remove("clusterrolebindings", "pods")
		g.Change(func() { g.Denied["alice pods"] = true })
		time.Sleep(time.Minute)
		g.patrol.Expect(alices, true, "")
		g.do(func() { g.cut["clusterrolebindings"] = false })
		if err := g.rights.clusterRoleBindings.Replace(nil, 1000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkMinInterval)
		g.patrol.Expect(alices, false, reauth.EndForbidden)
	})
}

// What may not be watched is said once, tried again, and stops nothing else.
func TestForbiddenTables(t *testing.T) {
	onGuard(t, func(g *guard, s *setup) {
		s.rights.RBAC = true
		g.forbidden["rolebindings"] = true
	}, func(g *guard) {
		g.grant("", "pods", user("alice"), reads("pods"))
		time.Sleep(10 * time.Minute)
		if n := g.log.FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		if g.metric("spillway_rbac_watch_denied", "rolebindings.rbac.authorization.k8s.io") != 1 {
			t.Error("no metric tells of it")
		}
		g.by(reauthtest.Named("alice"), "/api/v1/pods", auth.Allowed, 1)
		alices, _ := g.patrol.Watch(g.patrol.Know("alice"), "pods")
		g.Change(func() { g.Denied["alice pods"] = true })
		g.remove("clusterrolebindings", "pods")
		time.Sleep(checkMinInterval)
		g.patrol.Expect(alices, false, reauth.EndForbidden)
		g.do(func() { g.forbidden["rolebindings"] = false })
		g.grant("", "nodes", user("alice"), reads("nodes"))
		time.Sleep(forbiddenRetryInterval + auth.AnswerTTL)
		g.by(reauthtest.Named("alice"), "/api/v1/nodes", auth.Allowed, 0)
		if g.metric("spillway_rbac_watch_denied", "rolebindings.rbac.authorization.k8s.io") != 0 {
			t.Error("the metric still tells of it")
		}
	})
}

// An object that cannot be read leaves a table unproven.
func TestUnreadableObject(t *testing.T) {
	r := NewLocalAuthorizer(LocalAuthorizerOptions{RBAC: true})
	table := r.clusterRoles
	o, err := table.Resource().Parse(
		[]byte(`{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"a",` +
			`"resourceVersion":"7"},"rules":5}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Replace(nil, 5); err != nil || !table.isWhole {
		t.Fatal(err)
	}
	if err := table.Update(o); err == nil || table.isWhole {
		t.Errorf("it was taken: %v", err)
	}
	if err := table.Replace([]*object.Object{o}, 7); err == nil || table.isWhole {
		t.Errorf("it was taken: %v", err)
	}
	if err := table.prove(t.Context()); !errors.Is(err, errNotMirrored) {
		t.Errorf("proven: %v", err)
	}
}

// Beyond affectedSubjectsLimit entries, all subjects are affected.
func TestAffectedIsBounded(t *testing.T) {
	a, b := newAffectedSubjects(), newAffectedSubjects()
	for i := range affectedSubjectsLimit {
		a.add(subject{name: fmt.Sprint("a", i)})
		b.addPod(fmt.Sprint("b", i))
	}
	who, pods := reauthtest.Named("somebody"), reauthtest.Wants(t, "/api/v1/pods")
	if a.concerns(who, pods) || b.concerns(who, pods) {
		t.Error("a subject is affected")
	}
	if b.merge(a); !b.concerns(who, pods) || len(b.subjects)+len(b.pods) != 0 {
		t.Error("not all subjects are affected")
	}
	if c := newAffectedSubjects(); !c.isEmpty() {
		t.Error("a subject is affected by no change")
	}
}
