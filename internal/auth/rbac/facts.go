package rbac

import (
	"encoding/json"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// roleRef is a Role, or a ClusterRole, which has no namespace. The zero value is neither: a binding
// to anything else gives nothing.
type roleRef struct {
	isCluster       bool
	namespace, name string
}

// subject is a user or a group to which a binding grants a role: in one namespace or, with none, in
// all. A service account is a user with the name system:serviceaccount:NAMESPACE:NAME.
type subject struct {
	namespace string
	isGroup   bool
	name      string
}

// key is the key of the Role or ClusterRole among the mirrored objects.
func (r roleRef) key() string {
	if r.isCluster {
		return r.name
	}
	return r.namespace + "/" + r.name
}

// role is what is kept of a Role or a ClusterRole. Aggregated ones have the rules of all parts: the
// API server's controller writes them down.
type role struct{ rules []rbacv1.PolicyRule }

// binding is what is kept of a RoleBinding or a ClusterRoleBinding.
type binding struct {
	key          string // of the object
	isEverywhere bool   // it is a ClusterRoleBinding

	role     roleRef
	subjects []subject
}

// presence is what is kept of an object of which only its existence matters.
type presence struct {
	uid      string
	isEnding bool // it is being deleted
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

// readPresence reads that an object exists.
func readPresence(o *object.Object) (any, error) {
	var meta struct {
		DeletionTimestamp *string `json:"deletionTimestamp"`
	}
	err := json.Unmarshal(o.Metadata(), &meta)
	return presence{uid: strings.Clone(string(o.UID)), isEnding: meta.DeletionTimestamp != nil}, err
}

// objectName is where an object is.
type objectName struct{ namespace, name string }

// splitKey reads the key of an object in a namespace.
func splitKey(key string) objectName {
	namespace, name, _ := strings.Cut(key, "/")
	return objectName{namespace, name}
}
