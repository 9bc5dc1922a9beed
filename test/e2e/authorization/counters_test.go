package authorization

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
	"spillway/internal/auth/rbac"
	"spillway/test/framework/controlplane"
)

// withheldEvents withhold the events of their resources from tables for a while. They are delivered
// later, in order.
type withheldEvents struct {
	mu sync.Mutex
	on map[string]chan struct{} // closed at the end of the hold
}

// hold begins, and returns what ends it.
func (h *withheldEvents) hold(resource string) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		h.on = map[string]chan struct{}{}
	}
	ended := make(chan struct{})
	h.on[resource] = ended
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.on, resource)
		close(ended)
	})
}

// wait waits for the end of the hold on a resource, if there is one.
func (h *withheldEvents) wait(resource string) {
	h.mu.Lock()
	ended := h.on[resource]
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// TestLocalRBACOfTwoEtcds keeps role bindings in an etcd of their own and has both counters stand
// where versions of the one look like versions of the other. While the watch on roles is held, a
// role is narrowed and then bound: what the role gave before is never allowed here, because the
// bound user never had it, and is refused as soon as kube-apiserver itself refuses it. In one etcd
// the same holds.
func TestLocalRBACOfTwoEtcds(t *testing.T) {
	for what, apart := range map[string][]string{"one": nil, "two": {"rbac.authorization.k8s.io/rolebindings"}} {
		t.Run(what, func(t *testing.T) { narrowThenBind(t, controlplane.Options{SecondEtcd: apart}) })
	}
}

func narrowThenBind(t *testing.T, o controlplane.Options) {
	const namespace, name, user = "default", "narrowed", "mallory"
	w := newWorldWith(t, o)
	core, logs := observer.New(zap.ErrorLevel)
	m, _ := w.watchRights(t, 0, func(o *rbac.LocalAuthorizerOptions) {
		o.RBAC, o.Log, o.Random = true, zap.New(core), func() float64 { return 1 }
	})
	d, ctx, rbac := m.decider(w), t.Context(), w.admin.RbacV1()
	mallory := auth.NewIdentity(authenticationv1.UserInfo{Username: user})
	lists := func(resource string) auth.Attributes {
		return auth.Attributes{Verb: "list", Version: "v1", Resource: resource, Namespace: namespace}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{rule("list", "", "secrets,pods")}}
	role, err := rbac.Roles(namespace).Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The bindings' counter passes the role's version, and then the roles' counter passes the
	// bindings'.
	bindings := w.spend(t, "rolebindings", version(t, role)+20)
	roles := w.spend(t, "roles", bindings+500)
	w.settle(t)
	await(t, "decided here", func() bool {
		admin := auth.NewIdentity(authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}})
		_, here := d.decide(t, admin, lists("pods"))
		return here
	})
	time.Sleep(2 * auth.AnswerTTL / 3) // a proof has taken the roles to the end of their counter
	release := m.hold("roles")
	t.Cleanup(release)
	role.Rules = []rbacv1.PolicyRule{rule("list", "", "pods")}
	if _, err := rbac.Roles(namespace).Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the role is of version %s, its counter at %d or more, the binding of version %s", role.ResourceVersion,
		roles, bound.ResourceVersion)
	asked, denied := 0, 0
	for end := time.Now().Add(auth.AnswerTTL + 5*time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		asked++
		decision, here := d.decide(t, mallory, lists("secrets"))
		switch {
		case decision.Verdict == auth.Denied:
			denied++
		case decision.Verdict == auth.Allowed && !here && denied == 0:
			// kube-apiserver reads roles and bindings from two watches of its own, too, and may have
			// seen the binding first.
		default:
			t.Fatalf("question %d: %s (%v), decided here: %v", asked, decision.Verdict, decision.Err, here)
		}
	}
	if denied == 0 {
		t.Fatalf("kube-apiserver allowed all of %d questions", asked)
	}
	t.Logf("%d of %d questions were denied, the rest allowed by kube-apiserver before it saw the role", denied, asked)
	release()
	began := time.Now()
	await(t, "decided here again", func() bool {
		decision, here := d.decide(t, mallory, lists("pods"))
		return here && decision.Verdict == auth.Allowed
	})
	t.Logf("what the binding does give is decided here %v after the hold", time.Since(began))
	if logs.Len() > 0 {
		t.Errorf("the log has %q", logs.All()[0].Message)
	}
}

// spend writes objects of a resource until its counter has passed a version, and returns the last.
func (w *world) spend(t *testing.T, resource string, beyond uint64) uint64 {
	t.Helper()
	ctx, rbac, meta := t.Context(), w.admin.RbacV1(), metav1.ObjectMeta{Name: "spent-" + resource}
	for n := 0; ; n++ {
		meta.Labels = map[string]string{"n": strconv.Itoa(n)}
		var o metav1.Object
		var err error
		switch {
		case resource == "roles" && n == 0:
			o, err = rbac.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: meta}, metav1.CreateOptions{})
		case resource == "roles":
			o, err = rbac.Roles("default").Update(ctx, &rbacv1.Role{ObjectMeta: meta}, metav1.UpdateOptions{})
		default:
			one := &rbacv1.RoleBinding{ObjectMeta: meta,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "none"}}
			if n == 0 {
				o, err = rbac.RoleBindings("default").Create(ctx, one, metav1.CreateOptions{})
			} else {
				o, err = rbac.RoleBindings("default").Update(ctx, one, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if reached := version(t, o); reached > beyond {
			return reached
		}
	}
}

func version(t *testing.T, o metav1.Object) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", o.GetName(), err))
	}
	return v
}
