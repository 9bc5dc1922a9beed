package rbac

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/auth"
	"spillway/internal/auth/reauth/reauthtest"
	"spillway/internal/object"
)

func TestRules(t *testing.T) {
	f := func(rule rbacv1.PolicyRule, target string, want bool) {
		t.Helper()
		what := reauthtest.Wants(t, target)
		if got := ruleAllows(&rule, &what); got != want {
			t.Errorf("%+v, %s: got %v", rule, target, got)
		}
	}
	get := func(group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{group}, Resources: []string{resource},
			ResourceNames: names}
	}
	const pod, log = "/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/log"
	f(get("", "pods"), pod, true)
	f(get("", "pods"), log, false)
	f(get("", "pods/log"), log, true)
	f(get("", "pods/log"), pod, false)
	f(get("", "*/log"), log, true)
	f(get("", "*/log"), pod, false)
	f(get("", "*/"), pod, false)
	f(get("", "pods/*"), log, false) // which the API server does not know
	f(get("", "*"), log, true)
	f(get("*", "pods"), pod, true)
	f(get("apps", "pods"), pod, false)
	f(get("", "pods"), "/api/v1/namespaces/a/pods", false)
	f(get("", "pods", "p"), pod, true)
	f(get("", "pods", "q"), pod, false)
	f(rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"},
		ResourceNames: []string{"p"}},
		"/api/v1/pods?fieldSelector=metadata.name%3Dp", true)
	f(rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"},
		ResourceNames: []string{"p"}}, "/api/v1/pods", false)
	f(rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, "/version", false)
	url := func(urls ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: urls}
	}
	f(url("*"), "/version", true)
	f(url("*"), pod, false)
	f(url("/healthz/*"), "/healthz/ping", true)
	f(url("/healthz/*"), "/healthz", false)
	f(url("/health*"), "/healthz", true)
	f(url("/metrics"), "/metrics/x", false)
	f(url("/metrics**"), "/metrics/x", true)
	f(rbacv1.PolicyRule{}, "/version", false)
}

// referenceResolver is RBAC as the API server's resolver goes about it: it reads all bindings for
// each question.
type referenceResolver struct {
	roles        map[string]*rbacv1.Role
	clusterRoles map[string]*rbacv1.ClusterRole
	bindings     map[string]*rbacv1.RoleBinding
	clusterBinds map[string]*rbacv1.ClusterRoleBinding
}

func (u *referenceResolver) allows(who *auth.Identity, what *auth.Attributes) bool {
	for _, b := range u.clusterBinds {
		if u.applies(who, b.Subjects, "") && u.grants(b.RoleRef, "", what) {
			return true
		}
	}
	for _, b := range u.bindings {
		if what.Namespace != "" && b.Namespace == what.Namespace && u.applies(who, b.Subjects, b.Namespace) &&
			u.grants(b.RoleRef, b.Namespace, what) {
			return true
		}
	}
	return false
}

func (u *referenceResolver) grants(ref rbacv1.RoleRef, namespace string, what *auth.Attributes) bool {
	var rules []rbacv1.PolicyRule
	switch {
	case ref.Kind == "Role" && namespace != "" && u.roles[namespace+"/"+ref.Name] != nil:
		rules = u.roles[namespace+"/"+ref.Name].Rules
	case ref.Kind == "ClusterRole" && u.clusterRoles[ref.Name] != nil:
		rules = u.clusterRoles[ref.Name].Rules
	}
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return ruleAllows(&r, what) })
}

func (u *referenceResolver) applies(who *auth.Identity, subjects []rbacv1.Subject, namespace string) bool {
	for _, s := range subjects {
		home := namespace
		if s.Namespace != "" {
			home = s.Namespace
		}
		switch {
		case s.Kind == "User" && who.Name() == s.Name, s.Kind == "Group" && who.MemberOf(s.Name),
			s.Kind == "ServiceAccount" && home != "" && who.Name() == fmt.Sprintf("system:serviceaccount:%s:%s", home, s.Name):
			return true
		}
	}
	return false
}

// TestRBACIndex holds the index against reading everything, while roles and bindings come, change
// and go.
func TestRBACIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	some := func(from ...string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(string) bool { return random.IntN(3) == 0 })
	}
	namespaces, names := []string{"a", "b"}, []string{"x", "y", "z"}
	rules := func() []rbacv1.PolicyRule {
		rules := make([]rbacv1.PolicyRule, 1+random.IntN(3))
		for i := range rules {
			rules[i] = rbacv1.PolicyRule{
				Verbs: some("get", "list", "watch", "*"), APIGroups: some("", "apps", "*"),
				Resources: some("pods", "pods/log", "*/log", "nodes", "*"), ResourceNames: some("x", "y"),
				NonResourceURLs: some("/version", "/api*"),
			}
		}
		return rules
	}
	subjects := func() []rbacv1.Subject {
		subjects := make([]rbacv1.Subject, random.IntN(5))
		for i := range subjects {
			subjects[i] = rbacv1.Subject{Kind: pick("User", "Group", "ServiceAccount", "Robot"),
				Name: pick("x", "y", "system:serviceaccount:a:x"), Namespace: pick("", "", "a", "b")}
		}
		return subjects
	}
	ref := func() rbacv1.RoleRef {
		return rbacv1.RoleRef{Kind: pick("Role", "ClusterRole", "Other"), Name: pick(names...)}
	}
	r := NewLocalAuthorizer(LocalAuthorizerOptions{})
	u := &referenceResolver{map[string]*rbacv1.Role{}, map[string]*rbacv1.ClusterRole{}, map[string]*rbacv1.RoleBinding{},
		map[string]*rbacv1.ClusterRoleBinding{}}
	version := 0
	tell := func(table *PermissionTable, meta *metav1.ObjectMeta, o any, gone bool) {
		version++
		meta.ResourceVersion = fmt.Sprint(version)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := table.Resource().Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		act := table.Update
		if gone {
			act = table.Delete
		}
		if err := act(parsed); err != nil {
			t.Fatal(err)
		}
	}
	step := func() {
		namespace, name := pick(namespaces...), pick(names...)
		key, meta, gone := namespace+"/"+name, metav1.ObjectMeta{Namespace: namespace, Name: name}, random.IntN(4) == 0
		cluster := metav1.ObjectMeta{Name: name}
		switch random.IntN(4) {
		case 0:
			o := &rbacv1.Role{ObjectMeta: meta, Rules: rules()}
			if u.roles[key] = o; gone {
				delete(u.roles, key)
			}
			tell(r.roles, &o.ObjectMeta, o, gone)
		case 1:
			o := &rbacv1.ClusterRole{ObjectMeta: cluster, Rules: rules()}
			if u.clusterRoles[name] = o; gone {
				delete(u.clusterRoles, name)
			}
			tell(r.clusterRoles, &o.ObjectMeta, o, gone)
		case 2:
			o := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects(), RoleRef: ref()}
			if u.bindings[key] = o; gone {
				delete(u.bindings, key)
			}
			tell(r.roleBindings, &o.ObjectMeta, o, gone)
		case 3:
			o := &rbacv1.ClusterRoleBinding{ObjectMeta: cluster, Subjects: subjects(), RoleRef: ref()}
			if u.clusterBinds[name] = o; gone {
				delete(u.clusterBinds, name)
			}
			tell(r.clusterRoleBindings, &o.ObjectMeta, o, gone)
		}
	}
	targets := []string{"/api/v1/pods", "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/b/pods?watch=1",
		"/api/v1/namespaces/a/pods/y/log", "/api/v1/nodes", "/apis/apps/v1/namespaces/b/pods", "/version", "/apis"}
	var questions, yes int
	for range 3000 {
		step()
		for range 5 {
			who := reauthtest.Named(pick("x", "y", "w", "system:serviceaccount:a:x", "system:serviceaccount:b:y"),
				some("x", "y", "w")...)
			what := reauthtest.Wants(t, pick(targets...))
			ours, theirs := r.index.allows(who, &what, func(*binding) bool { return true }), u.allows(who, &what)
			if questions++; ours {
				yes++
			}
			if ours != theirs {
				t.Fatalf("%+v, %+v: got %v, want %v", who, what, ours, theirs)
			}
		}
	}
	if t.Logf("%d questions, %d allowed", questions, yes); yes < questions/20 || yes > questions*19/20 {
		t.Error("the questions are lopsided")
	}
	// With everything gone, nothing is kept.
	for _, table := range r.rbacTables() {
		if err := table.Replace([]*object.Object{}, 10_000); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.index.rules) + len(r.index.bindings) + len(r.index.bound); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// FuzzRoleObjects feeds tables with anything that is JSON of an object.
func FuzzRoleObjects(f *testing.F) {
	f.Add([]byte(`"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`))
	f.Add([]byte(`"subjects":[{"kind":"User","name":"a"}],"roleRef":{"kind":"Role","name":"x"}`))
	f.Add([]byte(`"rules":null,"subjects":{},"roleRef":[]`))
	f.Fuzz(func(t *testing.T, members []byte) {
		r := NewLocalAuthorizer(LocalAuthorizerOptions{RBAC: true})
		for _, table := range r.Tables() {
			raw := []byte(`{"kind":"X","apiVersion":"v1","metadata":{"name":"n","namespace":"m","resourceVersion":"7"},` +
				string(members) + `}`)
			if !json.Valid(raw) || strings.Contains(string(members), "metadata") {
				return
			}
			o, err := table.Resource().Parse(raw)
			if err != nil {
				return
			}
			if err := table.Replace([]*object.Object{o}, 7); (err == nil) != table.isWhole {
				t.Errorf("%s: whole %v, error %v", table.Resource(), table.isWhole, err)
			}
			get := auth.Attributes{Verb: "get", Resource: "pods"}
			if _, ok := r.decideAccess(auth.Digest{}, auth.ReviewRequest{Identity: reauthtest.Named("a"), Attributes: get}); ok {
				t.Error("allowed without a proof")
			}
		}
	})
}
