package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// gizmos are custom resources whose definition is changed while clients read and watch them.
var gizmos = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "gizmos"}

const (
	allGizmos = "/apis/" + widgetGroup + "/v1/gizmos"
	oldGizmos = "/apis/" + widgetGroup + "/v1beta1/gizmos"
)

func gizmoDefinition() *apiextensionsv1.CustomResourceDefinition {
	property := func(kind string) apiextensionsv1.JSONSchemaProps { return apiextensionsv1.JSONSchemaProps{Type: kind} }
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: gizmos.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgetGroup, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gizmos", Singular: "gizmo", Kind: "Gizmo",
				ListKind: "GizmoCollection"},
		},
	}
	// What is equal in all versions is stored apart, where selectable fields are refused.
	labels := map[string]string{"v1": ".spec.color", "v1beta1": ".spec.size"}
	for _, version := range []string{"v1", "v1beta1"} {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: version == "v1", Deprecated: version != "v1",
			SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: labels[version]}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Description: version, Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"color": property("string"), "size": property("integer"),
					}},
				},
			}},
		})
	}
	return d
}

// testDefinitions makes, changes and removes a definition under a proxy that mirrors on demand.
func (s *suite) testDefinitions(t *testing.T) {
	e := s.onDemand(t)
	client, err := apiextensions.NewForConfig(s.cp.Config(controlplane.Admin))
	must(t, err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	change := func(t *testing.T, patch string) {
		t.Helper()
		_, err := definitions.Patch(t.Context(), gizmos.GroupResource().String(), types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{})
		must(t, err)
	}
	s.same(t, e, "W-172", request{Target: allGizmos + "?resourceVersion=0"}, http.StatusNotFound, nil)
	_, err = definitions.Create(t.Context(), gizmoDefinition(), metav1.CreateOptions{})
	must(t, err)
	process.Awaiting(t, "the gizmos to be served", func(ctx context.Context) error {
		_, err := s.dynamic.Resource(gizmos).List(ctx, metav1.ListOptions{})
		return err
	})
	for name, color := range map[string]string{"g1": "red", "g2": "blue"} {
		_, err := s.dynamic.Resource(gizmos).Create(t.Context(), gizmo(name, color), metav1.CreateOptions{})
		must(t, err)
	}
	s.settleOn(t, e, allGizmos, oldGizmos)
	t.Run("appears", func(t *testing.T) { s.runAll(t, e, s.gizmoRequests()) })
	t.Run("schema", func(t *testing.T) {
		// The same objects, at the same resourceVersions, have other bytes from now on: while they are
		// read and watched.
		for _, path := range []string{allGizmos, oldGizmos} {
			s.settleOn(t, e, path)
			s.storyOf(t, e, "W-116 W-234", path+"?watch=1&timeoutSeconds=600&resourceVersion="+s.now(t, path), nil, func() {
				if path == allGizmos {
					change(t, `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape","value":{"type":"string","default":"round"}},
						{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size"},
						{"op":"remove","path":"/spec/versions/0/selectableFields"}]`)
					s.follows(t, e, allGizmos, "round", true)
					return
				}
				change(t, `[{"op":"remove","path":"/spec/versions/1/deprecated"},
					{"op":"replace","path":"/spec/versions/1/selectableFields/0/jsonPath","value":".spec.color"}]`)
			})
		}
		s.settleOn(t, e, allGizmos, oldGizmos)
		s.runAll(t, e, s.gizmoRequests())
	})
	t.Run("version is served no more", func(t *testing.T) {
		change(t, `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
		s.same(t, e, "W-172 W-234", request{Target: oldGizmos + "?resourceVersion=0"}, http.StatusNotFound, nil)
		awaitMirror(t, e, allGizmos)
	})
	t.Run("goes", func(t *testing.T) {
		s.storyOf(t, e, "W-116", allGizmos+"?watch=1&timeoutSeconds=600&resourceVersion="+s.now(t, allGizmos), nil, func() {
			must(t, definitions.Delete(t.Context(), gizmos.GroupResource().String(), metav1.DeleteOptions{}))
		})
		s.same(t, e, "W-116 W-172", request{Target: allGizmos + "?resourceVersion=0"}, http.StatusNotFound, nil)
	})
}

// gizmoRequests are what a definition has a say in: lists and their kind, warnings, selectable
// fields, bookmarks.
func (s *suite) gizmoRequests() []scenario {
	var all []scenario
	for version, path := range map[string]string{"v1": allGizmos, "v1beta1": oldGizmos} {
		all = append(all, over(version, []scenario{
			get("list", "W-4 W-60 W-234", path+"?resourceVersion=0", memory, 0),
			get("get", "W-4 W-234", path+"/g1?resourceVersion=0", memory, 0),
			get("watch", "W-4 W-110 W-234", path+"?watch=1&timeoutSeconds=1&resourceVersion=0"+marked, memory, 0),
			get("metadata alone", "W-45 W-234", path+"?resourceVersion=0", either, 0).with("Accept", jsonType+asPartials),
			get("color", "W-152 W-154", path+"?resourceVersion=0&fieldSelector=spec.color%3Dred", either, anyStatus),
			get("size", "W-152 W-154", path+"?resourceVersion=0&fieldSelector=spec.size%3D3", either, anyStatus),
			get("watch of a color", "W-152 W-154",
				path+"?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=spec.color%3Dred", either, anyStatus),
			get("namespace", "W-152 W-154", path+"?resourceVersion=0&fieldSelector=metadata.namespace%3Dx", either, 400),
			get("not there", "W-4 W-96", path+"/none?resourceVersion=0", either, 404),
		})...)
	}
	return all
}

// settleOn waits until a proxy answers from memory for collections, as the API server does.
func (s *suite) settleOn(t *testing.T, e *endpoint, paths ...string) {
	t.Helper()
	for _, path := range paths {
		s.same(t, e, "W-234", request{Target: path + "?resourceVersion=0"}, http.StatusOK, func(a *answer) error {
			if a.Header.Get(exchange.FlowControl) != "" {
				return errors.New("passed through")
			}
			return nil
		})
	}
}

// same waits until both sides answer a request alike, and with a status. Both may need a moment to
// follow a definition, and not the same one.
func (s *suite) same(t *testing.T, e *endpoint, rules string, r request, status int, also func(*answer) error) {
	t.Helper()
	var by exchange.Source
	process.Awaiting(t, fmt.Sprintf("%d for %s", status, r.Target), func(context.Context) error {
		direct, proxied := s.both(t, e, r, process.Patience)
		if direct == nil {
			return errors.New("no answer")
		}
		c := exchange.Compare(s.tally, r, direct, proxied)
		by = c.By()
		switch {
		case direct.Status != status:
			return fmt.Errorf("the API server answers %d", direct.Status)
		case len(c.Problems) > 0:
			return errors.New(strings.Join(c.Problems, "\n"))
		case also != nil:
			return also(proxied)
		}
		return nil
	})
	s.show(t, rules, by)
}

// follows sends a proxy the request again and again from the moment on when the API server shows
// something new, until it answers from memory: once it has shown the new it never shows the old,
// and what it shows from memory when it has followed is the new.
func (s *suite) follows(t *testing.T, e *endpoint, path, news string, wanted bool) {
	t.Helper()
	r := request{Target: path + "?resourceVersion=0"}
	process.Awaiting(t, "the API server to show something new", func(ctx context.Context) error {
		a, err := s.direct.Do(ctx, r)
		if err == nil && bytes.Contains(a.Body, []byte(news)) != wanted {
			err = errors.New("as it was")
		}
		return err
	})
	shown := false
	s.same(t, e, "W-234", r, http.StatusOK, func(a *answer) error {
		switch now := bytes.Contains(a.Body, []byte(news)) == wanted; {
		case now:
			shown = true
		case shown:
			t.Errorf("%s: what was before is shown after what is", e.Name)
		}
		if a.Header.Get(exchange.FlowControl) != "" {
			return errors.New("passed through")
		}
		return nil
	})
}

func gizmo(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gizmos.GroupVersion().String(), "kind": "Gizmo",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color, "size": int64(3)},
	}}
}
