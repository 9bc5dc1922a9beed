package conformance

import (
	"context"
	"net/http"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// panels are custom resources of two versions that differ in shape; a webhook converts what is
// stored in the first.
var (
	panels    = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "panels"}
	newPanels = schema.GroupVersionResource{Group: widgetGroup, Version: "v2", Resource: "panels"}
)

const (
	allPanels     = "/apis/" + widgetGroup + "/v1/panels"
	somePanels    = "/apis/" + widgetGroup + "/v1/namespaces/c1/panels"
	allNewPanels  = "/apis/" + widgetGroup + "/v2/panels"
	someNewPanels = "/apis/" + widgetGroup + "/v2/namespaces/c1/panels"
)

// sizes are the fields that panels are selected by.
var sizes = map[string]string{"v1": "spec.size", "v2": "spec.dimensions.size"}

func panelDefinition(c *converter) *apiextensionsv1.CustomResourceDefinition {
	type properties = map[string]apiextensionsv1.JSONSchemaProps
	object := func(p properties) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: p}
	}
	size := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	specs := map[string]properties{
		"v1": {"size": size},
		"v2": {"dimensions": object(properties{"size": size, "unit": {Type: "string"}})},
	}
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: panels.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgetGroup, Scope: apiextensionsv1.NamespaceScoped, Conversion: c.conversion(),
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "panels", Singular: "panel", Kind: "Panel"},
		},
	}
	for _, version := range []string{"v1", "v2"} {
		shape := object(properties{"spec": object(specs[version])})
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: version == "v1",
			SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: "." + sizes[version]}},
			Schema:           &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &shape},
		})
	}
	return d
}

// testConversions reads, watches and writes both versions of what a webhook converts: while it
// works, while it does not, and when it converts in another way than it did (W-234).
func (s *suite) testConversions(t *testing.T) {
	e, webhook := s.onDemand(t), newConverter(t)
	client, err := apiextensions.NewForConfig(s.cp.Config(controlplane.Admin))
	must(t, err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	_, err = definitions.Create(t.Context(), panelDefinition(webhook), metav1.CreateOptions{})
	must(t, err)
	s.makePanels(t)
	s.settleOn(t, e, allPanels, allNewPanels)
	t.Run("shapes", func(t *testing.T) { s.runAll(t, e, panelRequests()) })
	t.Run("live", func(t *testing.T) { s.testPanelsLive(t, e) })
	t.Run("out of order", func(t *testing.T) { s.testPanelsUnconverted(t, e, webhook) })
	t.Run("repaired", func(t *testing.T) {
		s.settleOn(t, e, allPanels, allNewPanels)
		s.runAll(t, e, panelRequests())
	})
	t.Run("live again", func(t *testing.T) { s.testPanelsLive(t, e) })
	t.Run("gone", func(t *testing.T) {
		must(t, definitions.Delete(t.Context(), panels.GroupResource().String(), metav1.DeleteOptions{}))
		for _, path := range []string{allPanels, allNewPanels} {
			s.same(t, e, "W-116 W-172 W-234", request{Target: path + "?resourceVersion=0"}, http.StatusNotFound, nil)
		}
	})
}

// makePanels makes one through each version as soon as that is served.
func (s *suite) makePanels(t *testing.T) {
	t.Helper()
	for gvr, name := range map[schema.GroupVersionResource]string{panels: "p1", newPanels: "p2"} {
		process.Awaiting(t, gvr.String()+" to be served", func(ctx context.Context) error {
			_, err := s.panels(gvr).Create(ctx, panel(gvr, name, 3), metav1.CreateOptions{})
			return err
		})
	}
}

// panels is where they are written, in a version.
func (s *suite) panels(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return s.dynamic.Resource(gvr).Namespace("c1")
}

func panel(gvr schema.GroupVersionResource, name string, size int64) *unstructured.Unstructured {
	spec := map[string]any{"size": size}
	if gvr == newPanels {
		spec = map[string]any{"dimensions": spec}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Panel",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "x"}}, "spec": spec,
	}}
}

// panelRequests are reads of both versions that an API server answers from its own memory, where
// everything is converted already.
func panelRequests() []scenario {
	var all []scenario
	for version, path := range map[string]string{"v1": somePanels, "v2": someNewPanels} {
		selected := "?resourceVersion=0&fieldSelector=" + sizes[version]
		all = append(all, over(version, []scenario{
			get("list", "W-60 W-234 W-235", path+"?resourceVersion=0", memory, 0),
			get("object", "W-95 W-234 W-235", path+"/p1?resourceVersion=0", memory, 0),
			get("object of the other version", "W-95 W-234 W-235", path+"/p2?resourceVersion=0", memory, 0),
			get("page", "W-69 W-234", path+"?resourceVersion=0&limit=1", memory, 0),
			get("watch", "W-100 W-234", path+"?watch=1&timeoutSeconds=1&resourceVersion=0", memory, 0),
			get("field", "W-152 W-153 W-234", path+selected+"%3D3", memory, 0),
			get("other size", "W-152 W-153 W-234", path+selected+"%3D4", memory, 0),
			get("watch of a size", "W-117 W-234", path+selected+"%3D3&watch=1&timeoutSeconds=1", memory, 0),
			get("metadata alone", "W-45 W-234", path+"?resourceVersion=0", memory, 0).with("Accept", jsonType+asPartials),
			get("metadata alone in protobuf", "W-45 W-133 W-234", path+"?resourceVersion=0", memory, 0).with("Accept",
				protobufType+asPartials),
			get("YAML", "W-47 W-234", path+"/p1?resourceVersion=0", upstream, 0).with("Accept", yamlType),
		})...)
	}
	return append(all,
		get("field of the other version", "W-154 W-234", somePanels+"?resourceVersion=0&fieldSelector="+sizes["v2"]+"%3D3",
			upstream, 400),
		get("field of the first version", "W-154 W-234", someNewPanels+"?resourceVersion=0&fieldSelector="+sizes["v1"]+"%3D3",
			upstream, 400))
}

// testPanelsLive watches both versions while both are written, and requests the same from history.
func (s *suite) testPanelsLive(t *testing.T, e *endpoint) {
	var targets []string
	for version, path := range map[string]string{"v1": somePanels, "v2": someNewPanels} {
		w := path + "?watch=1&timeoutSeconds=600&resourceVersion=" + s.now(t, path)
		targets = append(targets, w, w+byLabel("app=x"), w+byField(sizes[version]+"=3"))
	}
	ends := func(o event) bool { return o.Type == "DELETED" && o.Name == "c1/end" }
	s.stories(t, e, "W-103 W-104 W-105 W-234", targets, ends, func() { s.writePanels(t) })
	s.stories(t, e, "W-103 W-104 W-105 W-234", targets, ends, func() {})
}

// stories is storyOf several watches at the same time.
func (s *suite) stories(t *testing.T, e *endpoint, rules string, targets []string, until func(event) bool,
	happens func()) {
	t.Helper()
	for _, target := range targets {
		next := happens
		happens = func() { s.storyOf(t, e, rules, target, until, next) }
	}
	happens()
}

// writePanels writes through either version. What one of them applies the other one updates.
func (s *suite) writePanels(t *testing.T) {
	t.Helper()
	ctx, first, second := t.Context(), s.panels(panels), s.panels(newPanels)
	patch := func(to dynamic.ResourceInterface, name string, how types.PatchType, text string) {
		t.Helper()
		_, err := to.Patch(ctx, name, how, []byte(text), metav1.PatchOptions{})
		must(t, err)
	}
	_, err := first.Create(ctx, panel(panels, "live", 1), metav1.CreateOptions{})
	must(t, err)
	patch(second, "live", mergeType, `{"spec":{"dimensions":{"size":3}}}`)
	patch(first, "live", mergeType, `{"metadata":{"labels":{"app":"y"}}}`)
	patch(second, "live", mergeType, `{"metadata":{"labels":{"app":"x"}},"spec":{"dimensions":{"size":4}}}`)
	patch(first, "live", mergeType, `{"spec":{"size":3}}`)
	_, err = second.Apply(ctx, "applied", panel(newPanels, "applied", 3), metav1.ApplyOptions{FieldManager: "second"})
	must(t, err)
	_, err = first.Apply(ctx, "applied", panel(panels, "applied", 5),
		metav1.ApplyOptions{FieldManager: "first", Force: true})
	must(t, err)
	patch(second, "applied", types.JSONPatchType, `[{"op":"remove","path":"/spec/dimensions"}]`)
	must(t, second.Delete(ctx, "live", metav1.DeleteOptions{}))
	must(t, first.Delete(ctx, "applied", metav1.DeleteOptions{}))
	_, err = second.Create(ctx, panel(newPanels, "end", 3), metav1.CreateOptions{})
	must(t, err)
	must(t, first.Delete(ctx, "end", metav1.DeleteOptions{}))
}

// testPanelsUnconverted has the webhook fail for a while. What an API server has converted it goes
// on to show; from the next write on, whichever version that goes through, it refuses all reads of
// the converted version and ends its watches. There the proxy may show the state of before, to
// requests for a state of any age, and no other. Afterwards objects that were not written look
// otherwise than they did.
func (s *suite) testPanelsUnconverted(t *testing.T, e *endpoint, webhook *converter) {
	ctx, writes := t.Context(), s.panels(panels)
	_, err := writes.Create(ctx, panel(panels, "gone", 3), metav1.CreateOptions{})
	must(t, err)
	anyAge := request{Target: someNewPanels + "?resourceVersion=0"}
	s.same(t, e, "W-234", anyAge, http.StatusOK, saying(`"name":"gone"`))
	before, err := s.direct.Do(ctx, anyAge)
	must(t, err)
	replicas := s.panelReplicas(t, e)

	webhook.breakDown()
	t.Run("nothing is written", func(t *testing.T) {
		s.runAll(t, e, append(panelRequests(),
			get("object now", "W-95 W-181 W-234", someNewPanels+"/p1", upstream, 500),
			get("object now, as it is stored", "W-95 W-234", somePanels+"/p1", upstream, 0)))
	})
	var written string
	start := "?watch=1&timeoutSeconds=600&resourceVersion=" + s.now(t, somePanels)
	ending, err := s.direct.open(ctx, request{Target: someNewPanels + start})
	must(t, err)
	defer ending.cancel()
	made := func(o event) bool { return o.Type == "ADDED" && o.Name == "c1/made" }
	s.storyOf(t, e, "W-234", somePanels+start, made, func() {
		_, err := writes.Patch(ctx, "p1", mergeType, []byte(`{"spec":{"size":7}}`), metav1.PatchOptions{})
		must(t, err)
		must(t, writes.Delete(ctx, "gone", metav1.DeleteOptions{}))
		o, err := writes.Create(ctx, panel(panels, "made", 3), metav1.CreateOptions{})
		must(t, err)
		written = o.GetResourceVersion()
	})
	for range ending.lines { // when it ends, the API server has found out
	}
	t.Run("written", func(t *testing.T) { s.askUnconverted(t, e, written, before) })

	webhook.repair("cm")
	s.follows(t, e, allNewPanels, `"unit":"cm"`, true)
	healing, cancel := context.WithTimeout(ctx, process.Patience)
	defer cancel()
	for _, r := range replicas {
		must(t, r.untilEqual(healing, s.dynamic))
	}
	s.show(t, "W-115 W-231 W-234", memory)
}

// askUnconverted requests what an API server cannot convert, after a write.
func (s *suite) askUnconverted(t *testing.T, e *endpoint, written string, before *answer) {
	s.runAll(t, e, []scenario{
		get("stored version", "W-60 W-234", somePanels+"?resourceVersion="+written, memory, 0),
		get("stored version, object", "W-95 W-234", somePanels+"/made?resourceVersion="+written, memory, 0),
		get("object now", "W-95 W-181 W-234", someNewPanels+"/p1", upstream, 500),
		get("object as it was written", "W-95 W-181 W-234", someNewPanels+"/made?resourceVersion="+written, upstream, 500),
		get("page now", "W-63 W-181 W-234", someNewPanels+"?limit=1", upstream, 500),
	})
	hurried := "?timeout=1s&resourceVersion=" + written // each second of the outage delays the mirror's next try
	for _, query := range []string{"", hurried, hurried + "&resourceVersionMatch=Exact", "?watch=1&timeoutSeconds=2" +
		informer} {
		t.Run("refused"+query, func(t *testing.T) {
			t.Parallel()
			s.refusedUnconverted(t, e, request{Target: someNewPanels + query})
		})
	}
	t.Run("of any age", func(t *testing.T) {
		t.Parallel()
		r := request{Target: someNewPanels + "?resourceVersion=0"}
		a, err := e.Do(t.Context(), r)
		must(t, err)
		by := upstream
		if a.Status == http.StatusOK {
			c := exchange.Compare(s.tally, r, before, a)
			for _, problem := range c.Problems {
				t.Error(problem)
			}
			by = c.By()
		}
		s.show(t, "W-63 W-234", by)
	})
}

// refusedUnconverted expects that neither side shows anything. The API server's error depends on
// how far it is with its next try.
func (s *suite) refusedUnconverted(t *testing.T, e *endpoint, r request) {
	t.Helper()
	direct, proxied := s.both(t, e, r, process.Patience)
	if direct == nil {
		return
	}
	for side, a := range map[string]*answer{"apiserver": direct, "proxy": proxied} {
		if a.Status < http.StatusBadRequest {
			t.Errorf("the %s answers %d %s", side, a.Status, exchange.Clip(a.Body))
		}
	}
	s.show(t, "W-72 W-217 W-234", upstream)
}

// panelReplicas run informers of both versions through a proxy until the test ends.
func (s *suite) panelReplicas(t *testing.T, e *endpoint) []*replica {
	t.Helper()
	client, err := dynamic.NewForConfig(e.Config)
	must(t, err)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	var all []*replica
	for _, gvr := range []schema.GroupVersionResource{panels, newPanels} {
		r := &replica{name: gvr.String(), gvr: gvr, informer: factory.ForResource(gvr).Informer(),
			versions: map[string]string{}}
		_, err := r.informer.AddEventHandler(r)
		must(t, err)
		all = append(all, r)
	}
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	factory.Start(stop)
	for gvr, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("%s: has not synced", gvr)
		}
	}
	return all
}
