package serve

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
)

// Every answer about a deprecated resource warns of that: documents, watches and refusals (W-4). No
// other does. A list says what the resource's definition calls it.
func TestDeprecatedResourcesWarnInEveryAnswer(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "gadgets"}
	gadgets := object.NewResource(gvr, "Gadget", true, false)
	gadgets.ListKind = "GadgetCollection"
	r := newRig(t, rigOptions{
		up: fakeapiserver.Options{Resources: []fakeapiserver.Resource{{GVR: gvr, Kind: "Gadget", Namespaced: true,
			Deprecated: "gadgets are old news"}}},
		mirrors: []*object.Resource{gadgets, configMaps},
	})
	for _, info := range r.catalog {
		r.up.Create(info.Resource().Info.GVR, "n", "a")
		r.mirrored(info.Resource().Info)
	}
	check := func(target, warning string, code, want int, head http.Header) {
		t.Helper()
		if code != want {
			t.Errorf("%s: %d, head %v; want %d", target, code, head, want)
		}
		if got := strings.Join(head.Values("Warning"), "; "); got != warning {
			t.Errorf("%s: warns of %q, want %q", target, got, warning)
		}
	}
	for info, warning := range map[*object.Resource]string{gadgets: `299 - "gadgets are old news"`, configMaps: ""} {
		path := info.Path()
		object := strings.Replace(path, info.GVR.Resource, "namespaces/n/"+info.GVR.Resource+"/a", 1)
		for target, want := range map[string]int{
			path + "?resourceVersion=0": http.StatusOK, object + "?resourceVersion=0": http.StatusOK,
			path + "?resourceVersion=0&limit=x": http.StatusBadRequest,
		} {
			answer := r.list(target)
			if check(target, warning, answer.Status, want, answer.Header); answer.Header.Get(
				"X-Kubernetes-Pf-Flowschema-Uid") != "" {
				t.Errorf("%s was answered upstream", target)
			}
			if info == gadgets && target == path+"?resourceVersion=0" &&
				!strings.Contains(string(answer.Body), `"kind":"GadgetCollection"`) {
				t.Errorf("a list of gadgets is %s", answer.Body)
			}
		}
		early := r.list(path + "?resourceVersion=0&timeout=x")
		check(path+", refused before it was looked at", "", early.Status, http.StatusBadRequest, early.Header)
		target := path + "?watch=1&resourceVersion=0"
		code, head, err := r.watch(target).Head(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		check(target, warning, code, http.StatusOK, head)
	}
}
