package rbac

import (
	"encoding/json"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// rbac is what subjects may do by the roles and bindings that upstream has. It decides as
// kube-apiserver's RBAC authorizer does; test/e2e/authorization compares the two. Rules only ever
// add permissions: what is missing here can make it say no where upstream says yes, not the other
// way round.
//
// A binding gives a role only if upstream had both at one moment (tables.togetherLocked). The two
// are watched apart. Without that condition, a user that is bound to a role after the role was
// narrowed would for some seconds be allowed what the role gave before.
//
// Guarded by the lock of its LocalAuthorizer.
type rbac struct {
	rules    map[roleRef][]rbacv1.PolicyRule
	bindings map[subject]map[*binding]struct{} // by their subjects
	bound    map[roleRef]map[*binding]struct{} // by what they refer to
}

// roleRef is a Role, or a ClusterRole if it has no namespace.
type roleRef struct {
	isCluster       bool
	namespace, name string
}

// subject is what a binding gives a role: a user or a group, in one namespace or, with none,
// everywhere. A service account is a user by its name.
type subject struct {
	namespace string
	isGroup   bool
	name      string
}

// key is that of the object.
func (r roleRef) key() string {
	if r.isCluster {
		return r.name
	}
	return r.namespace + "/" + r.name
}

// role is what is kept of a Role or a ClusterRole. Aggregated ones have the rules of all parts:
// upstream's controller writes them down.
type role struct{ rules []rbacv1.PolicyRule }

// binding is what is kept of a RoleBinding or a ClusterRoleBinding.
type binding struct {
	key          string // of the object
	isEverywhere bool   // it is a ClusterRoleBinding

	role     roleRef
	subjects []subject
}

// existing is what is kept of an object of which only its existence matters.
type existing struct {
	uid      string
	isEnding bool // it is being deleted
}

func newRBAC() *rbac {
	return &rbac{
		rules: map[roleRef][]rbacv1.PolicyRule{}, bindings: map[subject]map[*binding]struct{}{},
		bound: map[roleRef]map[*binding]struct{}{},
	}
}

// allows reports that a rule allows something, of a role that a binding gives for which counts is
// true. It looks at what kube-apiserver looks at: not at the user's id, extras, nor at selectors.
func (b *rbac) allows(who *auth.Identity, what *auth.Attributes, counts func(*binding) bool) bool {
	if b.allowsIn("", who, what, counts) {
		return true
	}
	return what.Namespace != "" && b.allowsIn(what.Namespace, who, what, counts)
}

// allowsIn looks at the bindings of one namespace, or with none at those that count everywhere.
func (b *rbac) allowsIn(namespace string, who *auth.Identity, what *auth.Attributes, counts func(*binding) bool) bool {
	if b.allowsSubject(subject{namespace: namespace, name: who.Name()}, what, counts) {
		return true
	}
	return who.AnyGroup(func(group string) bool {
		return b.allowsSubject(subject{namespace: namespace, isGroup: true, name: group}, what, counts)
	})
}

func (b *rbac) allowsSubject(s subject, what *auth.Attributes, counts func(*binding) bool) bool {
	for one := range b.bindings[s] {
		if rulesAllow(b.rules[one.role], what) && counts(one) {
			return true
		}
	}
	return false
}

func rulesAllow(rules []rbacv1.PolicyRule, what *auth.Attributes) bool {
	for i := range rules {
		if ruleAllows(&rules[i], what) {
			return true
		}
	}
	return false
}

// ruleAllows is upstream's RuleAllows.
func ruleAllows(rule *rbacv1.PolicyRule, a *auth.Attributes) bool {
	if !matches(rule.Verbs, rbacv1.VerbAll, a.Verb) {
		return false
	}
	if a.Path != "" {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return urlMatches(url, a.Path) })
	}
	return matches(rule.APIGroups, rbacv1.APIGroupAll, a.Group) &&
		slices.ContainsFunc(rule.Resources, func(r string) bool { return resourceMatches(r, a.Resource, a.Subresource) }) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

func matches(list []string, all, wanted string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == all || s == wanted })
}

func urlMatches(url, path string) bool {
	return url == rbacv1.NonResourceAll || url == path ||
		strings.HasSuffix(url, "*") && strings.HasPrefix(path, strings.TrimRight(url, "*"))
}

// resourceMatches knows "*", "pods", "pods/log" and "*/log".
func resourceMatches(rule, resource, subresource string) bool {
	switch {
	case rule == rbacv1.ResourceAll:
		return true
	case subresource == "":
		return rule == resource
	}
	return rule == resource+"/"+subresource || rule == "*/"+subresource
}

// readRole reads a Role or a ClusterRole.
func readRole(o *object.Object) (any, error) {
	var from struct {
		Rules []rbacv1.PolicyRule `json:"rules"`
	}
	err := json.Unmarshal(o.JSON(), &from)
	return &role{from.Rules}, err
}

// readBinding reads a RoleBinding or a ClusterRoleBinding.
func readBinding(o *object.Object) (any, error) {
	var from struct {
		Subjects []rbacv1.Subject `json:"subjects"`
		RoleRef  rbacv1.RoleRef   `json:"roleRef"`
	}
	if err := json.Unmarshal(o.JSON(), &from); err != nil {
		return nil, err
	}
	namespace := strings.Clone(o.Namespace())
	b := &binding{key: strings.Clone(o.Key), isEverywhere: namespace == ""}
	switch from.RoleRef.Kind {
	case "Role":
		b.role = roleRef{namespace: namespace, name: from.RoleRef.Name}
	case "ClusterRole":
		b.role = roleRef{isCluster: true, name: from.RoleRef.Name}
	}
	for _, s := range from.Subjects {
		if one, ok := subjectOf(s, namespace); ok {
			b.subjects = append(b.subjects, one)
		}
	}
	return b, nil
}

// subjectOf reads a subject of a binding in a namespace. One of another kind has no rights.
func subjectOf(s rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{namespace: namespace, name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{namespace: namespace, isGroup: true, name: s.Name}, true
	case rbacv1.ServiceAccountKind:
		home := s.Namespace
		if home == "" {
			home = namespace
		}
		return subject{namespace: namespace, name: serviceAccountName(home, s.Name)}, home != ""
	}
	return subject{}, false
}

// serviceAccountName is the user name of a service account.
func serviceAccountName(namespace, name string) string {
	return auth.ServiceAccountPrefix + namespace + ":" + name
}

// readExisting reads that an object is there.
func readExisting(o *object.Object) (any, error) {
	var meta struct {
		DeletionTimestamp *string `json:"deletionTimestamp"`
	}
	err := json.Unmarshal(o.Metadata(), &meta)
	return existing{uid: strings.Clone(string(o.UID)), isEnding: meta.DeletionTimestamp != nil}, err
}

// setRole takes another version of a role, nil for none.
func (b *rbac) setRole(ref roleRef, r *role) {
	if r == nil {
		delete(b.rules, ref)
		return
	}
	b.rules[ref] = r.rules
}

// setBinding takes another version of a binding.
func (b *rbac) setBinding(before, after *binding) {
	if before != nil {
		for _, s := range before.subjects {
			drop(b.bindings, s, before)
		}
		drop(b.bound, before.role, before)
	}
	if after != nil {
		for _, s := range after.subjects {
			put(b.bindings, s, after)
		}
		put(b.bound, after.role, after)
	}
}

func put[K comparable](index map[K]map[*binding]struct{}, key K, b *binding) {
	if index[key] == nil {
		index[key] = map[*binding]struct{}{}
	}
	index[key][b] = struct{}{}
}

func drop[K comparable](index map[K]map[*binding]struct{}, key K, b *binding) {
	delete(index[key], b)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// objectName is where an object is.
type objectName struct{ namespace, name string }

// splitKey reads the key of an object in a namespace.
func splitKey(key string) objectName {
	namespace, name, _ := strings.Cut(key, "/")
	return objectName{namespace, name}
}
