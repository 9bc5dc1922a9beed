package object

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources that the tests of this package speak of: one of each shape.
var (
	pods        = NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	nodes       = NewResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false, true)
	deployments = NewResource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		"Deployment", true, true)
	widgets = NewResource(schema.GroupVersionResource{Group: "wire.example", Version: "v1", Resource: "widgets"},
		"Widget", true, false,
		Field{Label: "spec.size", Path: path("spec.size")}, Field{Label: "spec.deep.on", Path: path("spec.deep.on")})
	gadgets = NewResource(schema.GroupVersionResource{Group: "wire.example", Version: "v1", Resource: "gadgets"}, "Gadget",
		false, false)
)

func builtin(group, resource, kind string, namespaced bool) *Resource {
	return NewResource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, kind, namespaced,
		true)
}

func mustParse(t testing.TB, r *Resource, raw string) *Object {
	t.Helper()
	o, err := r.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return o
}

// An object is shown whole, as an item, and at another resourceVersion, and all three are splices
// of upstream's bytes.
func TestObjectBytes(t *testing.T) {
	f := func(r *Resource, raw, wantJSON, wantItem, wantAt string) {
		t.Helper()
		o := mustParse(t, r, raw)
		check := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s of %s\n got %s\nwant %s", what, raw, got, want)
			}
		}
		check("JSON", string(o.JSON()), wantJSON)
		check("item", "{"+string(o.ItemMembers()), wantItem)
		check("at 1000", string(o.AppendAt([]byte("x"), "1000")), "x"+wantAt)
		if o.Size() != len(wantJSON) {
			t.Errorf("%s: size %d, want %d", raw, o.Size(), len(wantJSON))
		}
	}
	const (
		podType = `{"kind":"Pod","apiVersion":"v1",`
		podRest = `"metadata":{"name":"a","namespace":"n","resourceVersion":"7","uid":"u"},"spec":{}}`
		podLate = `"metadata":{"name":"a","namespace":"n","resourceVersion":"1000","uid":"u"},"spec":{}}`
	)
	// A watch event or a GET carries the type, an item of a list does not.
	f(pods, podType+podRest, podType+podRest, "{"+podRest, podType+podLate)
	f(pods, "{"+podRest, podType+podRest, "{"+podRest, podType+podLate)
	f(pods, " \n{"+podRest+"\n", podType+podRest, "{"+podRest, podType+podLate)
	// The group is part of the type.
	f(deployments, `{"metadata":{"resourceVersion":"1"}}`,
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"1"}}`,
		`{"metadata":{"resourceVersion":"1"}}`,
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"resourceVersion":"1000"}}`)
	// Custom resources carry their type everywhere, in sorted order.
	const widget = `{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"name":"a","namespace":"n",` +
		`"resourceVersion":"12345"},"spec":{"size":3}}`
	const later = `{"apiVersion":"wire.example/v1","kind":"Widget","metadata":{"name":"a","namespace":"n",` +
		`"resourceVersion":"1000"},"spec":{"size":3}}`
	f(widgets, widget, widget, widget, later)
	// A type in an order that is not upstream's is left where it stands.
	const odd = `{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"1"}}`
	f(pods, odd, odd, odd, `{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"1000"}}`)
	// Only metadata.resourceVersion is the object's, whatever else is called that.
	const refs = `{"apiVersion":"wire.example/v1","resourceVersion":"5","spec":{"resourceVersion":"6","metadata":` +
		`{"resourceVersion":"8"}},"metadata":{"annotations":{"resourceVersion":"9"},"resourceVersion":"7","x":` +
		`{"resourceVersion":"10"}}}`
	const refsLater = `{"apiVersion":"wire.example/v1","resourceVersion":"5","spec":{"resourceVersion":"6","metadata":` +
		`{"resourceVersion":"8"}},"metadata":{"annotations":{"resourceVersion":"9"},"resourceVersion":"1000","x":` +
		`{"resourceVersion":"10"}}}`
	f(widgets, refs, refs, refs, refsLater)
}

func TestResourceNames(t *testing.T) {
	f := func(r *Resource, name, path, apiVersion string) {
		t.Helper()
		if r.String() != name || r.Path() != path || r.APIVersion() != apiVersion {
			t.Errorf("got %s, %s, %s", r.String(), r.Path(), r.APIVersion())
		}
	}
	f(pods, "pods", "/api/v1/pods", "v1")
	f(deployments, "deployments.apps", "/apis/apps/v1/deployments", "apps/v1")
	f(widgets, "widgets.wire.example", "/apis/wire.example/v1/widgets", "wire.example/v1")
}

func TestTypeNames(t *testing.T) {
	for typ, want := range map[Type]string{Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED"} {
		if typ.String() != want {
			t.Errorf("%d is %q, want %q", typ, typ, want)
		}
	}
}
