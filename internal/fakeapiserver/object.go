package fakeapiserver

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// Obj is one version of one object, as stored. Immutable.
type Obj struct {
	Key       string // namespace/name, or name if cluster-scoped
	Namespace string
	Name      string
	UID       string
	RV        uint64
	Labels    labels.Set
	Fields    fields.Set // everything a field selector may ask for
	Raw       []byte     // compact JSON with kind and apiVersion, without the line feed: what GET and WATCH send

	item []byte // the same as an item of a list: built-in kinds leave kind and apiVersion out (W-60)
}

// tree decodes the object into maps that the caller may change.
func (o *Obj) tree() map[string]any {
	var m map[string]any
	if err := utiljson.Unmarshal(o.Raw, &m); err != nil {
		panic(fmt.Sprintf("BUG: stored object is not JSON: %v", err))
	}
	return m
}

// mustJSON encodes what is known to be encodable.
func mustJSON(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("BUG: %T cannot be encoded: %v", value, err))
	}
	return raw
}

// object makes the version of an object that m describes, at revision rv.
func (r *Resource) object(m map[string]any, rv uint64) (*Obj, error) {
	meta := metadata(m)
	meta["resourceVersion"] = formatRV(rv)
	m["kind"], m["apiVersion"] = r.Kind, r.GVR.GroupVersion().String()
	raw, item, err := r.encode(m)
	if err != nil {
		return nil, err
	}
	var head struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	h := head.Metadata
	return &Obj{
		Key: r.key(h.Namespace, h.Name), Namespace: h.Namespace, Name: h.Name, UID: string(h.UID), RV: rv,
		Labels: h.Labels, Fields: r.fieldsOf(m, h.Namespace, h.Name), Raw: raw, item: item,
	}, nil
}

// encode prints an object twice: on its own and as an item of a list (W-8, W-60).
func (r *Resource) encode(m map[string]any) (raw, item []byte, err error) {
	if raw, err = json.Marshal(m); err != nil || r.Custom {
		return raw, raw, err
	}
	if !r.isTyped {
		delete(m, "kind")
		delete(m, "apiVersion")
		item, err = json.Marshal(m)
		return raw, item, err
	}
	typed, err := scheme.Scheme.New(r.gvk())
	if err != nil {
		return nil, nil, err
	}
	if err := utiljson.Unmarshal(raw, typed); err != nil {
		return nil, nil, err
	}
	return encodeTyped(typed, r.gvk())
}

func encodeTyped(o runtime.Object, gvk schema.GroupVersionKind) (raw, item []byte, err error) {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if item, err = json.Marshal(o); err != nil {
		return nil, nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err = json.Marshal(o)
	return raw, item, err
}

// withRV is the same object with another resourceVersion.
func (r *Resource) withRV(o *Obj, rv uint64) *Obj {
	moved, err := r.object(o.tree(), rv)
	if err != nil {
		panic(fmt.Sprintf("BUG: stored object cannot be encoded again: %v", err))
	}
	return moved
}

// bookmark prints the object of a BOOKMARK event: the zero value of the kind with a resourceVersion
// (W-110). One that is an end marker ends the initial events.
func (r *Resource) bookmark(rv uint64, isEndMarker bool) []byte {
	meta := map[string]any{"resourceVersion": formatRV(rv)}
	if isEndMarker {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	m := map[string]any{"kind": r.Kind, "apiVersion": r.GVR.GroupVersion().String(), "metadata": meta}
	raw, _, err := r.encode(m)
	if err != nil {
		panic(fmt.Sprintf("BUG: bookmark of %s: %v", r.Kind, err))
	}
	return raw
}

// partial cuts an object down to its metadata (W-45).
func partial(raw []byte, apiVersion string) []byte {
	var p metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &p); err != nil {
		panic(fmt.Sprintf("BUG: stored object is not JSON: %v", err))
	}
	p.Kind, p.APIVersion = "PartialObjectMetadata", apiVersion
	return mustJSON(p)
}

// equalButRV reports that two objects differ in nothing but the resourceVersion.
func equalButRV(a, b *Obj) bool {
	x, y := a.tree(), b.tree()
	delete(metadata(x), "resourceVersion")
	delete(metadata(y), "resourceVersion")
	return bytes.Equal(mustJSON(x), mustJSON(y))
}

// metadata returns the metadata map of an object, adding one if it has none.
func metadata(m map[string]any) map[string]any {
	meta, ok := m["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		m["metadata"] = meta
	}
	return meta
}
