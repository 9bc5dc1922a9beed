package codec

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"spillway/internal/object"
)

// recorded are the bookmarks of every built-in watchable resource as kube-apiserver 1.37.1 sends
// them at the end of the initial events: apiVersion, resource, object.
//
//go:embed testdata/bookmarks.txt
var recorded string

type recordedBookmark struct {
	resource *object.Resource
	object   string
}

func recordedBookmarks(t testing.TB) []recordedBookmark {
	t.Helper()
	var out []recordedBookmark
	for line := range strings.Lines(recorded) {
		columns := strings.SplitN(strings.TrimSpace(line), " ", 3)
		gv, err := schema.ParseGroupVersion(columns[0])
		if err != nil {
			t.Fatal(err)
		}
		var typed metav1.TypeMeta
		if err := json.Unmarshal([]byte(columns[2]), &typed); err != nil {
			t.Fatal(err)
		}
		out = append(out, recordedBookmark{object.NewResource(gv.WithResource(columns[1]), typed.Kind, true, true),
			columns[2]})
	}
	if len(out) != 64 {
		t.Fatalf("%d resources", len(out))
	}
	return out
}

// withoutTypes are the kinds whose Go types are not client-go's: their first bookmark comes from
// upstream.
var withoutTypes = map[string]bool{"APIService": true, "CustomResourceDefinition": true}

// TestTemplates is Annex A of the wire: bookmarks made from Go's zero values are those that
// upstream sends (W-110).
func TestTemplates(t *testing.T) {
	for _, r := range recordedBookmarks(t) {
		want := r.object
		if withoutTypes[r.resource.Kind] {
			want = string(object.NewBookmark(r.resource).Append(nil, 448, true))
		}
		if got := string(Template(r.resource).Append(nil, 448, true)); got != want {
			t.Errorf("%s\n got %s\nwant %s", r.resource, got, want)
		}
	}
	custom := object.NewResource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "deployments"},
		"Deployment", true, false)
	if got := string(Template(custom).Append(nil, 7,
		false)); got != `{"apiVersion":"g/v1","kind":"Deployment","metadata":{"resourceVersion":"7"}}` {
		t.Errorf("a custom resource: %s", got)
	}
}

// TestBookmarksInProtobuf: a bookmark in protobuf is the same zero value (W-110, W-132).
func TestBookmarksInProtobuf(t *testing.T) {
	for _, r := range recordedBookmarks(t) {
		if withoutTypes[r.resource.Kind] {
			continue
		}
		typed, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(r.object))
		if err != nil {
			t.Fatal(err)
		}
		typed.GetObjectKind().SetGroupVersionKind(r.resource.GVR.GroupVersion().WithKind(r.resource.Kind))
		got, err := AppendBookmark(nil, protobufWhole, Template(r.resource), 448, true)
		if want := serialize(t, typed); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n got %q\nwant %q", r.resource, err, got, want)
		}
	}
}

// TestBookmarksOfMetadata: a bookmark of a view of metadata is that view of a bookmark (W-110).
func TestBookmarksOfMetadata(t *testing.T) {
	custom := object.NewResource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "widgets"}, "Widget",
		true, false)
	pods := object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)
	for _, r := range []*object.Resource{custom, pods} {
		for view, gv := range partialGVs {
			partial := &metav1.PartialObjectMetadata{}
			partial.SetGroupVersionKind(gv.WithKind("PartialObjectMetadata"))
			partial.ResourceVersion = "435"
			partial.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			for format, want := range map[object.Format][]byte{
				object.Protobuf: serialize(t, partial),
				object.JSON: []byte(`{"kind":"PartialObjectMetadata","apiVersion":"` + gv.String() +
					`","metadata":{"resourceVersion":"435","annotations":{"k8s.io/initial-events-end":"true"}}}`),
			} {
				got, err := AppendBookmark(nil, object.Encoding{Format: format, View: view}, Template(r), 435, true)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %v\n got %q\nwant %q", r, err, got, want)
				}
			}
		}
	}
}
