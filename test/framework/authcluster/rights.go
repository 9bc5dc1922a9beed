package authcluster

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Right is what a user may do, in a namespace or everywhere.
type Right struct {
	Namespace string // empty: everywhere
	Rules     []rbacv1.PolicyRule
}

// In is a right in a namespace.
func In(namespace string, rules ...rbacv1.PolicyRule) Right { return Right{namespace, rules} }

// Everywhere is a right in all namespaces, and beside them.
func Everywhere(rules ...rbacv1.PolicyRule) Right { return Right{"", rules} }

// Rule allows verbs on resources of a group, both with commas between; of these objects alone, if
// there are names.
func Rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{group},
		Resources: strings.Split(resources, ","), ResourceNames: names}
}

// Paths allows verbs on what is no resource.
func Paths(verbs string, paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), NonResourceURLs: paths}
}

var granted atomic.Int64

// Grant gives a user rights: a role and a binding for each, whose common name is returned.
func (c *Cluster) Grant(t *testing.T, to User, rights ...Right) []string {
	t.Helper()
	var names []string
	for _, r := range rights {
		names = append(names, c.GrantTo(t, to.Subject, r))
	}
	return names
}

// GrantTo gives a right to a subject, and returns the name of the role and the binding.
func (c *Cluster) GrantTo(t *testing.T, to rbacv1.Subject, r Right) string {
	t.Helper()
	ctx, rbac, options := t.Context(), c.Admin.RbacV1(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("right-%d", granted.Add(1))}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	var err error
	if r.Namespace == "" {
		if _, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.Rules},
			options); err == nil {
			_, err = rbac.ClusterRoleBindings().Create(
				ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{to}, RoleRef: ref}, options)
		}
	} else {
		ref.Kind = "Role"
		if _, err = rbac.Roles(r.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: r.Rules}, options); err == nil {
			_, err = rbac.RoleBindings(r.Namespace).Create(
				ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{to}, RoleRef: ref}, options)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return meta.Name
}
