// Package object is the vocabulary of the proxy: one version of one Kubernetes object, one change, who sees which change,
// and what determines the bytes a client receives. It knows no network and holds no state.
//
// Invariant: everything here is immutable once made, but for Forms, which are made when first asked for. An Object, its bytes and its labels are shared by the watch cache, by
// every feed and by every response that is being written, and none of them takes a lock.
package object

import (
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Object is one version of one Kubernetes object: the JSON that the apiserver sent and what selectors need from it.
// Immutable.
//
// The JSON is kept, not a decoded tree: a response is then a splice of bytes that upstream made, so it cannot differ from
// upstream's, and an object costs its size once. Byte offsets remember the few places where responses differ from each
// other: the type members, which items of a built-in list lack (W-60), and the resourceVersion, which a DELETED replaces
// (W-103, W-104).
type Object struct {
	// Key is "namespace/name", or "name" for cluster-scoped objects. Keys sorted bytewise are in upstream's order (W-61).
	Key    string
	UID    types.UID
	RV     uint64
	Labels labels.Set

	values   []string // of resource.Fields, by index
	resource *Resource
	raw      []byte
	typeEnd  int  // raw[1:typeEnd] is `"kind":…,"apiVersion":…,` of a built-in; 0 where items carry their type
	metadata span // the value of metadata
	rv       span // the digits of metadata.resourceVersion

	forms atomic.Pointer[Forms]
}

// span is a half-open range of bytes.
type span struct{ start, end int }

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

// JSON is the object with its type, as a GET or a watch event shows it: compact and without a trailing newline.
// The caller must not change it.
func (o *Object) JSON() []byte { return o.raw }

// Size is the number of bytes that the object's JSON takes, the measure of every byte budget.
func (o *Object) Size() int { return len(o.raw) }

// AppendItem appends the object as an item of a list: built-in kinds without kind and apiVersion (W-60).
func (o *Object) AppendItem(dst []byte) []byte {
	if o.typeEnd == 0 {
		return append(dst, o.raw...)
	}
	dst = append(dst, '{')
	return append(dst, o.raw[o.typeEnd:]...)
}

// ItemSize is the number of bytes that AppendItem appends.
func (o *Object) ItemSize() int {
	if o.typeEnd == 0 {
		return len(o.raw)
	}
	return len(o.raw) - o.typeEnd + 1
}

// AppendAt appends the object's JSON with rv, in decimal, for its resourceVersion: a deletion shows the last state at the
// revision of the delete (W-104).
func (o *Object) AppendAt(dst []byte, rv string) []byte {
	dst = append(dst, o.raw[:o.rv.start]...)
	dst = append(dst, rv...)
	return append(dst, o.raw[o.rv.end:]...)
}

// SizeAt is the number of bytes that AppendAt appends.
func (o *Object) SizeAt(rv string) int { return len(o.raw) - (o.rv.end - o.rv.start) + len(rv) }

// Metadata is the value of the object's metadata as upstream wrote it. The caller must not change it.
func (o *Object) Metadata() []byte { return o.raw[o.metadata.start:o.metadata.end] }

// AppendMetadataAt appends the value of the object's metadata with rv, in decimal, for its resourceVersion.
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
	return s.o.values[i]
}
