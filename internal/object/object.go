// Package object is the vocabulary of the proxy: one version of one Kubernetes object, one change,
// which clients see which change, and what determines the bytes a client receives. It knows no
// network and holds no state.
//
// Invariant: everything here is immutable once made, except Forms, which are made at their first
// use. An Object, its bytes and its labels are shared by the watch cache, by every feed and by
// every response that is being written, and none of them takes a lock.
package object

import (
	"sort"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Object is one version of one Kubernetes object: the JSON that the API server sent and what
// selectors need from it. Immutable.
//
// The JSON is kept, not a decoded tree: a response is then a splice of bytes that upstream made, so
// it cannot differ from upstream's, and an object costs its size once. Byte offsets remember the
// few places where responses differ from each other: the type members, which items of a built-in
// list lack (W-60), and the resourceVersion, which a DELETED replaces (W-103, W-104). Fields and
// labels are offsets, too. All strings of an object but its Key share its bytes, and keep them
// alive: copy a string that outlives the object.
type Object struct {
	// Key is "namespace/name", or "name" for cluster-scoped objects. Keys sorted bytewise are in
	// upstream's order (W-61).
	Key string
	UID types.UID
	RV  uint64

	resource *Resource
	raw      []byte
	// values are the places of the resource's fields, by index, nowhere if one is missing, and then of
	// the labels, names and values in turn.
	values      []span
	typeEnd     uint32 // raw[1:typeEnd] is `"kind":…,"apiVersion":…,` of a built-in; 0 where items carry their type
	hasEscapes  bool   // some of the values are not spelled as themselves
	isUnordered bool   // the labels do not ascend, each once, as upstream writes them
	metadata    span   // the value of metadata
	rv          span   // the digits of metadata.resourceVersion

	serial uint64 // among all objects that this process has parsed; a Form of several is found by theirs
	forms  atomic.Pointer[forms]
}

// span is a half-open range of bytes of an object's JSON, without the quotes of a string. The zero
// span is nowhere. An object has about twenty of them, and strings would be twice as large.
type span struct{ start, end uint32 }

// text is the decoded text in a place.
func (o *Object) text(sp span) string {
	if o.hasEscapes && sp.start > 0 && o.raw[sp.start-1] == '"' {
		text, _ := decode(o.raw[sp.start-1 : sp.end+1]) // Parse has done so
		return text
	}
	return view(o.raw[sp.start:sp.end])
}

// Namespace is the object's namespace, "" for cluster-scoped ones.
func (o *Object) Namespace() string {
	ns, _, found := strings.Cut(o.Key, "/")
	if !found {
		return ""
	}
	return ns
}

// Name is the object's name.
func (o *Object) Name() string {
	return o.Key[strings.IndexByte(o.Key, '/')+1:]
}

// Resource is what the object is one of.
func (o *Object) Resource() *Resource { return o.resource }

// JSON is the object with its type, as a GET or a watch event shows it: compact and without a
// trailing newline. The caller must not change it.
func (o *Object) JSON() []byte { return o.raw }

// Size is the number of bytes that the object's JSON takes, the measure of every byte budget.
func (o *Object) Size() int { return len(o.raw) }

// ItemMembers are the members of the object as an item of a list, with the brace after them:
// built-in kinds without kind and apiVersion (W-60). A brace in front of them makes the item. The
// caller must not change them.
func (o *Object) ItemMembers() []byte { return o.raw[max(int(o.typeEnd), len("{")):] }

// ResourceVersion is the object's version as it is written.
func (o *Object) ResourceVersion() string { return view(o.raw[o.rv.start:o.rv.end]) }

// AppendAt appends the object's JSON with rv, in decimal, for its resourceVersion: a deletion shows
// the last state at the revision of the delete (W-104).
func (o *Object) AppendAt(dst []byte, rv string) []byte {
	dst = append(dst, o.raw[:o.rv.start]...)
	dst = append(dst, rv...)
	return append(dst, o.raw[o.rv.end:]...)
}

// SizeAt is the number of bytes that AppendAt appends.
func (o *Object) SizeAt(rv string) int { return len(o.raw) - int(o.rv.end-o.rv.start) + len(rv) }

// Metadata is the value of the object's metadata as upstream wrote it. The caller must not change
// it.
func (o *Object) Metadata() []byte { return o.raw[o.metadata.start:o.metadata.end] }

// AppendMetadataAt appends the value of the object's metadata with rv, in decimal, for its
// resourceVersion.
func (o *Object) AppendMetadataAt(dst []byte, rv string) []byte {
	dst = append(dst, o.raw[o.metadata.start:o.rv.start]...)
	dst = append(dst, rv...)
	return append(dst, o.raw[o.rv.end:o.metadata.end]...)
}

// Fields are the object's selectable fields (W-152).
func (o *Object) Fields() fields.Fields { return fieldSet{o} }

// fieldSet reads selectable fields from an object without building a map per object.
type fieldSet struct{ o *Object }

// Has reports whether the resource has the field at all: a missing value is "" (W-151).
func (s fieldSet) Has(field string) bool { return s.o.resource.Selectable(field) }

// Get is the field's value, "" if the object has none.
func (s fieldSet) Get(field string) string {
	switch field {
	case FieldName:
		return s.o.Name()
	case FieldNamespace:
		return s.o.Namespace()
	}
	i, ok := s.o.resource.fieldIndex[field]
	if !ok || i >= len(s.o.values) {
		return ""
	}
	sp := s.o.values[i]
	if sp == (span{}) {
		return s.o.resource.fields[i].Default
	}
	return s.o.text(sp)
}

// NumLabels is how many labels the object has.
func (o *Object) NumLabels() int { return len(o.labels()) / 2 }

// Label is one of the labels, in the order of the JSON. If that names one twice, the last counts.
func (o *Object) Label(i int) (name, value string) {
	all := o.labels()
	return o.text(all[2*i]), o.text(all[2*i+1])
}

// labels are the places of names and values in turn.
func (o *Object) labels() []span { return o.values[min(len(o.values), len(o.resource.fields)):] }

// labelSet reads labels from an object without building a map per object.
type labelSet struct{ o *Object }

// Has reports whether the object has the label.
func (s labelSet) Has(label string) bool {
	_, ok := s.Lookup(label)
	return ok
}

// Get is the label's value, "" if the object does not have it.
func (s labelSet) Get(label string) string {
	value, _ := s.Lookup(label)
	return value
}

// Lookup is the label's value, and whether the object has the label.
func (s labelSet) Lookup(label string) (string, bool) {
	all := s.o.labels()
	if !s.o.isUnordered {
		i := sort.Search(len(all)/2, func(i int) bool { return s.o.text(all[2*i]) >= label })
		if 2*i < len(all) && s.o.text(all[2*i]) == label {
			return s.o.text(all[2*i+1]), true
		}
		return "", false
	}
	for i := len(all) - 2; i >= 0; i -= 2 {
		if s.o.text(all[i]) == label {
			return s.o.text(all[i+1]), true
		}
	}
	return "", false
}
