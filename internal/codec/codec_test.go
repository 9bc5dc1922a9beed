package codec

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"spillway/internal/object"
)

var (
	protobufWhole = object.Encoding{Format: object.Protobuf}
	partialGVs    = map[object.View]schema.GroupVersion{
		object.Metadata: metav1.SchemeGroupVersion, object.MetadataV1beta1: metav1beta1.SchemeGroupVersion,
	}
)

// serialize is what upstream's own serializer makes of an object.
func serialize(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// kinds are the types that have metadata of objects and a protobuf form.
func kinds(t testing.TB) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		o, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := meta.Accessor(o); err == nil && gvk.Version != runtime.APIVersionInternal &&
			!strings.HasSuffix(gvk.Kind, "List") {
			out = append(out, gvk)
		}
	}
	return out
}

func resourceOf(gvk schema.GroupVersionKind) *object.Resource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return object.NewResource(plural, gvk.Kind, true, true)
}

// sample is an object of the kind with random content, as Go holds it and as upstream would send
// it.
func sample(t testing.TB, gvk schema.GroupVersionKind, seed int64) (runtime.Object, *object.Object) {
	t.Helper()
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(seed), scheme.Codecs)
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	fill.Fill(o)
	m, _ := meta.Accessor(o)
	m.SetNamespace("n")
	m.SetName("a")
	m.SetResourceVersion("448")
	o.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := resourceOf(gvk).Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	// What JSON cannot say was never on the wire.
	again, _ := scheme.Scheme.New(gvk)
	if err := json.Unmarshal(raw, again); err != nil {
		t.Fatal(err)
	}
	return again, parsed
}

// TestEveryKindInProtobuf: what is made of the JSON of an object of any kind is what upstream's
// serializer makes of the object: alone, in a list, as metadata, and at the revision of its
// deletion (W-104, W-132, W-133, W-45).
func TestEveryKindInProtobuf(t *testing.T) {
	all := kinds(t)
	if len(all) < 64 {
		t.Fatalf("only %d kinds", len(all))
	}
	for i, gvk := range all {
		t.Run(gvk.String(), func(t *testing.T) {
			typed, o := sample(t, gvk, int64(i))
			checkDocument(t, typed, o)
			checkList(t, gvk, typed, o)
		})
	}
}

func checkDocument(t *testing.T, typed runtime.Object, o *object.Object) {
	t.Helper()
	for _, rv := range []uint64{o.RV, 7, 1 << 60} {
		m, _ := meta.Accessor(typed)
		m.SetResourceVersion(itoa(rv))
		expect(t, protobufWhole, o, rv, serialize(t, typed))
		for view, gv := range partialGVs {
			partial := meta.AsPartialObjectMetadata(m)
			partial.SetGroupVersionKind(gv.WithKind("PartialObjectMetadata"))
			expect(t, object.Encoding{Format: object.Protobuf, View: view}, o, rv, serialize(t, partial))
			text, _ := json.Marshal(partial)
			expect(t, object.Encoding{View: view}, o, rv, text)
		}
		m.SetResourceVersion("448")
	}
}

func itoa(rv uint64) string { text, _ := json.Marshal(rv); return string(text) }

func expect(t *testing.T, enc object.Encoding, o *object.Object, rv uint64, want []byte) {
	t.Helper()
	got, err := Append([]byte("x"), enc, o, rv)
	if err != nil || string(got) != "x"+string(want) {
		t.Fatalf("%+v at %d: %v\n got %q\nwant %q", enc, rv, err, got, want)
	}
}

func checkList(t *testing.T, gvk schema.GroupVersionKind, typed runtime.Object, o *object.Object) {
	t.Helper()
	list, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return // no collection upstream
	}
	remaining := int64(12)
	for _, own := range []metav1.ListMeta{{ResourceVersion: "500"},
		{ResourceVersion: "500", Continue: "abc", RemainingItemCount: &remaining}} {
		for n := range 3 {
			items, objects := make([]runtime.Object, n), make([]*object.Object, n)
			for i := range n {
				items[i], objects[i] = typed, o
			}
			if err := meta.SetList(list, items); err != nil {
				t.Fatal(err)
			}
			list.(metav1.ListInterface).SetResourceVersion(own.ResourceVersion)
			list.(metav1.ListInterface).SetContinue(own.Continue)
			list.(metav1.ListInterface).SetRemainingItemCount(own.RemainingItemCount)
			list.GetObjectKind().SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			expectList(t, o.Resource(), protobufWhole, objects, own, serialize(t, list))
			checkPartialLists(t, o.Resource(), typed, objects, own)
		}
	}
}

func checkPartialLists(t *testing.T, r *object.Resource, typed runtime.Object, objects []*object.Object,
	own metav1.ListMeta) {
	t.Helper()
	m, _ := meta.Accessor(typed)
	for view, gv := range partialGVs {
		var items []metav1.PartialObjectMetadata
		for range objects {
			partial := meta.AsPartialObjectMetadata(m)
			partial.SetGroupVersionKind(gv.WithKind("PartialObjectMetadata"))
			items = append(items, *partial)
		}
		var list runtime.Object = &metav1.PartialObjectMetadataList{ListMeta: own, Items: items}
		if view == object.MetadataV1beta1 {
			list = &metav1beta1.PartialObjectMetadataList{ListMeta: own, Items: items}
		}
		list.GetObjectKind().SetGroupVersionKind(gv.WithKind("PartialObjectMetadataList"))
		expectList(t, r, object.Encoding{Format: object.Protobuf, View: view}, objects, own, serialize(t, list))
		text, _ := json.Marshal(list)
		expectList(t, r, object.Encoding{View: view}, objects, own, append(text, '\n'))
	}
}

func expectList(t *testing.T, r *object.Resource, enc object.Encoding, objects []*object.Object, own metav1.ListMeta,
	want []byte) {
	t.Helper()
	l, err := NewList(enc, r, append([]*object.Object(nil), objects...), own)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if n, err := l.WriteTo(&out); err != nil || n != int64(out.Len()) || out.Len() != l.Size() {
		t.Fatalf("%v; wrote %d, says %d and %d", err, out.Len(), n, l.Size())
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Fatalf("%+v\n got %q\nwant %q", enc, out.Bytes(), want)
	}
}
