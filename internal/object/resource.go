package object

import (
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what must be known of one API resource to mirror it: its names, its scope and its
// selectable fields. Made by NewResource, and immutable once it is shared.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	ListKind   string // of a list; a definition may choose any
	Namespaced bool
	// Builtin says that kube-apiserver's own types serve it: list items lack their type and keys stand
	// in Go's order. Custom resources carry it, and their keys are sorted (W-8, W-60).
	Builtin bool
	// Definition names the state of the definition that makes a custom resource what it is,
	// StorageHash upstream's storageVersionHash. Where one differs, objects have other bytes at the
	// same resourceVersions (design D2). Empty: not known.
	Definition, StorageHash string

	typePrefix  string // `{"kind":"Pod","apiVersion":"v1",`
	fields      []Field
	fieldIndex  map[string]int
	paths       *pathNode
	noNamespace bool // metadata.namespace is not selectable

	encodings atomic.Pointer[EncodingCache] // bounds the forms of its objects; nil: nothing does
	stripped  atomic.Bool                   // see StripManagedFields
}

// The fields that are selectable everywhere, or nearly so; they say what a selector's scope says.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)

// Field is one selectable field: the label that clients write and the place of its value in the
// JSON.
type Field struct {
	Label string
	// Path leads to a scalar. A field without a path is accepted and never set (W-153).
	Path []string
	// Default is the value when the path is absent.
	Default string
	// Indexed says that few objects have the same value, and that clients select by one.
	Indexed bool
}

// NewResource describes one resource. The fields of built-in resources come from upstream's own
// table (W-152); custom resources have metadata.name and, if namespaced, metadata.namespace, and
// whatever is given in extra.
func NewResource(gvr schema.GroupVersionResource, kind string, namespaced, builtin bool, extra ...Field) *Resource {
	r := &Resource{GVR: gvr, Kind: kind, ListKind: kind + "List", Namespaced: namespaced, Builtin: builtin,
		fieldIndex: map[string]int{}}
	r.typePrefix = `{"kind":"` + kind + `","apiVersion":"` + gvr.GroupVersion().String() + `",`
	r.noNamespace = !builtin && !namespaced
	if builtin {
		special := builtinFields[gvr.GroupResource()]
		r.fields = special.fields
		r.noNamespace = special.noNamespace
	}
	r.fields = append(r.fields[:len(r.fields):len(r.fields)], extra...)
	r.paths = &pathNode{field: noField}
	for i, f := range r.fields {
		r.fieldIndex[f.Label] = i
		if len(f.Path) > 0 {
			r.paths.insert(f.Path, i)
		}
	}
	return r
}

// Indexed are the labels of the fields by whose value objects are found.
func (r *Resource) Indexed() []string {
	var indexed []string
	for _, f := range r.fields {
		if f.Indexed {
			indexed = append(indexed, f.Label)
		}
	}
	return indexed
}

// APIVersion is the group and version as objects name it, "v1" or "apps/v1".
func (r *Resource) APIVersion() string { return r.GVR.GroupVersion().String() }

// String is kubectl's name for the resource, "pods" or "deployments.apps".
func (r *Resource) String() string { return r.GVR.GroupResource().String() }

// Path is the URL path of the resource across all namespaces.
func (r *Resource) Path() string {
	if r.GVR.Group == "" {
		return "/api/" + r.GVR.Version + "/" + r.GVR.Resource
	}
	return "/apis/" + r.GVR.Group + "/" + r.GVR.Version + "/" + r.GVR.Resource
}

// Selectable reports whether a field selector may name label (W-152). Upstream words the refusal of
// any other.
func (r *Resource) Selectable(label string) bool {
	switch label {
	case FieldName:
		return true
	case FieldNamespace:
		return !r.noNamespace
	}
	_, ok := r.fieldIndex[label]
	return ok
}

// key is the object's Key. It has bytes of its own.
func (r *Resource) key(namespace, name string) string {
	if !r.Namespaced {
		return strings.Clone(name)
	}
	return namespace + "/" + name
}

// pathNode is a tree of the JSON paths that lead to selectable fields, so that one walk over an
// object finds them all. Several labels may share one path (spec.host is spec.nodeName), hence
// aliases.
type pathNode struct {
	children map[string]*pathNode
	field    int // the index of the field whose path ends here, or noField
	aliases  []int
}

const noField = -1

func (n *pathNode) insert(path []string, field int) {
	for _, p := range path {
		if n.children == nil {
			n.children = map[string]*pathNode{}
		}
		child := n.children[p]
		if child == nil {
			child = &pathNode{field: noField}
			n.children[p] = child
		}
		n = child
	}
	if n.field != noField {
		n.aliases = append(n.aliases, field)
		return
	}
	n.field = field
}

func (n *pathNode) set(values []span, v span) {
	values[n.field] = v
	for _, a := range n.aliases {
		values[a] = v
	}
}

func path(dotted string) []string { return strings.Split(dotted, ".") }

// HasPaths reports that kube-apiserver reads the paths of a resource as that resource's. It does
// not if a custom resource has the name of a part of paths: "namespaces", or one of the verbs
// "watch" and "proxy" (W-33).
func HasPaths(r schema.GroupResource) bool {
	switch r.Resource {
	case "namespaces":
		return r.Group == ""
	case "watch", "proxy":
		return false
	}
	return true
}
