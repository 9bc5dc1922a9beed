package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"spillway/internal/auth"
)

// ruleIndex is what subjects may do by the roles and bindings that the API server has. It decides
// as kube-apiserver's RBAC authorizer does; test/e2e/authorization compares the two. Rules only
// ever add permissions: what is missing here can make it say no where the API server says yes, not
// the other way round.
//
// A binding gives a role only if the API server had both at one moment (tables.togetherLocked). The
// two are watched apart. Without that condition, a user that is bound to a role after the role was
// narrowed would for some seconds be allowed what the role gave before.
//
// Guarded by the lock of its LocalAuthorizer.
type ruleIndex struct {
	rules    map[roleRef][]rbacv1.PolicyRule
	bindings map[subject]map[*binding]struct{} // by their subjects
	bound    map[roleRef]map[*binding]struct{} // by what they refer to
}

func newRuleIndex() *ruleIndex {
	return &ruleIndex{
		rules: map[roleRef][]rbacv1.PolicyRule{}, bindings: map[subject]map[*binding]struct{}{},
		bound: map[roleRef]map[*binding]struct{}{},
	}
}

// allows reports that a rule of a role allows something, if the role's binding counts. It looks at
// what kube-apiserver looks at: not at the user's id, extras, nor at selectors.
func (x *ruleIndex) allows(who *auth.Identity, what *auth.Attributes, counts func(*binding) bool) bool {
	if x.allowsIn("", who, what, counts) {
		return true
	}
	return what.Namespace != "" && x.allowsIn(what.Namespace, who, what, counts)
}

// allowsIn looks at the bindings of one namespace, or with none at those that count everywhere.
func (x *ruleIndex) allowsIn(namespace string, who *auth.Identity, what *auth.Attributes,
	counts func(*binding) bool) bool {
	if x.allowsSubject(subject{namespace: namespace, name: who.Name()}, what, counts) {
		return true
	}
	return who.AnyGroup(func(group string) bool {
		return x.allowsSubject(subject{namespace: namespace, isGroup: true, name: group}, what, counts)
	})
}

func (x *ruleIndex) allowsSubject(s subject, what *auth.Attributes, counts func(*binding) bool) bool {
	for one := range x.bindings[s] {
		if rulesAllow(x.rules[one.role], what) && counts(one) {
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

// ruleAllows is the API server's RuleAllows.
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

// setRole takes another version of a role, nil for none.
func (x *ruleIndex) setRole(ref roleRef, r *role) {
	if r == nil {
		delete(x.rules, ref)
		return
	}
	x.rules[ref] = r.rules
}

// setBinding takes another version of a binding.
func (x *ruleIndex) setBinding(before, after *binding) {
	if before != nil {
		for _, s := range before.subjects {
			drop(x.bindings, s, before)
		}
		drop(x.bound, before.role, before)
	}
	if after != nil {
		for _, s := range after.subjects {
			put(x.bindings, s, after)
		}
		put(x.bound, after.role, after)
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
