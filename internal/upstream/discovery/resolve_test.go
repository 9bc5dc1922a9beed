package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
	"spillway/internal/upstream"
)

// cluster is what a small API server with two CRDs and an aggregated API answers.
func cluster() map[string]string {
	const lw = `"verbs":["get","list","watch"]`
	return map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[
			{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},
			{"name":"autoscaling","versions":[{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],
				"preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}},
			{"name":"gateway.networking.k8s.io","versions":[{"groupVersion":"gateway.networking.k8s.io/v1","version":"v1"}]},
			{"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}]},
			{"name":"y.io","versions":[{"groupVersion":"y.io/v1","version":"v1"}]},
			{"name":"gone.example","versions":[{"groupVersion":"gone.example/v1","version":"v1"}]}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"pods","singularName":"pod","kind":"Pod","namespaced":true,"shortNames":["po"],` + lw + `},
			{"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]},
			{"name":"secrets","singularName":"secret","kind":"Secret","namespaced":true,` + lw + `},
			{"name":"bindings","singularName":"binding","kind":"Binding","namespaced":true,"verbs":["create"]},
			{"name":"events","singularName":"event","kind":"Event","namespaced":true,"shortNames":["ev"],` + lw + `}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[
			{"name":"deployments","singularName":"deployment","kind":"Deployment","namespaced":true,"shortNames":["deploy"],` + lw + `},
			{"name":"shiny","singularName":"shiny","kind":"ShinyNewKind",` + lw + `}]}`,
		"/apis/y.io/v1": `{"kind":"APIResourceList","groupVersion":"y.io/v1","resources":[
			{"name":"namespaces","singularName":"space","kind":"Space","namespaced":false,` + lw + `},
			{"name":"proxy","singularName":"proxie","kind":"Proxy","namespaced":false,` + lw + `},
			{"name":"watch","singularName":"watcher","kind":"Watch","namespaced":true,` + lw + `}]}`,
		"/apis/autoscaling/v1": `{"kind":"APIResourceList","groupVersion":"autoscaling/v1","resources":[
			{"name":"horizontalpodautoscalers","singularName":"horizontalpodautoscaler","kind":"HorizontalPodAutoscaler","namespaced":true,` + lw + `}]}`,
		"/apis/autoscaling/v2": `{"kind":"APIResourceList","groupVersion":"autoscaling/v2","resources":[
			{"name":"horizontalpodautoscalers","singularName":"horizontalpodautoscaler","kind":"HorizontalPodAutoscaler","namespaced":true,` + lw + `}]}`,
		"/apis/gateway.networking.k8s.io/v1": `{"kind":"APIResourceList","groupVersion":"gateway.networking.k8s.io/v1","resources":[
			{"name":"gateways","singularName":"gateway","kind":"Gateway","namespaced":true,"shortNames":["gtw"],` + lw + `}]}`,
		"/apis/metrics.k8s.io/v1beta1": `{"kind":"APIResourceList","groupVersion":"metrics.k8s.io/v1beta1","resources":[
			{"name":"podmetrics","singularName":"podmetric","kind":"PodMetrics","namespaced":true,` + lw + `}]}`,
		apiServices: `{"items":[
			{"metadata":{"name":"v1.","labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}},"spec":{"version":"v1"}},
			{"metadata":{"name":"v1.apps","labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}},"spec":{"group":"apps","version":"v1"}},
			{"metadata":{"name":"v1.gateway.networking.k8s.io","labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}},
				"spec":{"group":"gateway.networking.k8s.io","version":"v1"}},
			{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":"metrics.k8s.io","version":"v1beta1",
				"service":{"namespace":"kube-system","name":"metrics-server"}}}]}`,
		apiServices + "/v1.gateway.networking.k8s.io": `{"metadata":{"labels":` +
			`{"kube-aggregator.kubernetes.io/automanaged":"true"}},"spec":{}}`,
		apiServices + "/v1beta1.metrics.k8s.io": `{"spec":{"service":{"namespace":"kube-system",` +
			`"name":"metrics-server"}}}`,
		customResourceDefinitions: `{"items":[` + gateways + `]}`,
		customResourceDefinitions + "/gateways.gateway.networking.k8s.io": gateways,
	}
}

const gateways = `{"spec":{"group":"gateway.networking.k8s.io","names":{"plural":"gateways"},"versions":[
	{"name":"v1","selectableFields":[{"jsonPath":".spec.class"},{"jsonPath":".spec['odd']"}]},{"name":"v1beta1"}]}}`

func names(resources []*object.Resource) string {
	var all []string
	for _, r := range resources {
		name := r.GVR.Resource + "." + r.GVR.Version + "." + r.GVR.Group
		if !r.Builtin {
			name += "(custom)"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// strictly resolves names of which none may be wrong.
func strictly(t *testing.T, c *upstream.Client, args []string) ([]*object.Resource, error) {
	t.Helper()
	resolved, err := Resolve(deadline(t), c, args)
	if err == nil {
		err = JoinErrors(resolved)
	}
	var all []*object.Resource
	for _, one := range resolved {
		all = append(all, one.Resource)
	}
	return all, err
}

func TestResolve(t *testing.T) {
	c := documents(t, cluster())
	f := func(args, want string) {
		t.Helper()
		got, err := strictly(t, c, strings.Fields(args))
		if err != nil || names(got) != want {
			t.Errorf("%s: %s, %v; want %s", args, names(got), err, want)
		}
	}
	f("pods", "pods.v1.")
	f("po", "pods.v1.")
	f("Pod", "pods.v1.")
	f("pods.v1.", "pods.v1.")
	f("pods.v1", "pods.v1.")
	f("secret", "secrets.v1.")
	f("deploy deployments.apps deployment.v1.apps", "deployments.v1.apps")
	f("horizontalpodautoscalers", "horizontalpodautoscalers.v2.autoscaling")
	f("horizontalpodautoscalers.v1.autoscaling", "horizontalpodautoscalers.v1.autoscaling")
	f("gateways.gateway.networking.k8s.io po", "gateways.v1.gateway.networking.k8s.io(custom) pods.v1.")
	f("gtw", "gateways.v1.gateway.networking.k8s.io(custom)")
	f("shiny", "shiny.v1.apps") // client-go does not know it, the APIService's label does
}

func TestResolveRefuses(t *testing.T) {
	c := documents(t, cluster())
	f := func(args string, parts ...string) {
		t.Helper()
		got, err := strictly(t, c, strings.Fields(args))
		if err == nil {
			t.Errorf("%s: %s", args, names(got))
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", args, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q is more than a line", args, err)
		}
	}
	f("pds", `no resource "pds"`, "did you mean pods?")
	f("deployment.v1.app", "did you mean deployments.apps?")
	f("gatways", "gateways.gateway.networking.k8s.io")
	f("xylophones", `no resource "xylophones"`)
	f("events", "events is never mirrored", "no watch cache")
	f("ev", "events is never mirrored")
	f("bindings", "cannot be listed and watched", "verbs are create")
	f("podmetrics", "aggregated", "kube-system/metrics-server")
	f("pods/log", "pods/log is never mirrored", "subresource")
	f("namespaces.y.io",
		`namespaces.y.io is never mirrored: the API server reads "namespaces" in a path as a part of paths`)
	f("spaces.y.io proxy.y.io watch.y.io", `no resource "spaces.y.io"`, "proxy.y.io is never mirrored",
		"watch.y.io is never mirrored")
	f("pds po events", `"pds"`, "; ", "events is never mirrored")
	f("pods.v2.", `no resource "pods.v2."`)
	f("pods.v2", `no resource "pods.v2"`)
	f("list", `no resource "list"`)
	for _, args := range []string{"pods/log", "events", "podmetrics"} {
		resolved, err := Resolve(deadline(t), c, []string{args})
		if err != nil || !errors.As(resolved[0].Err, new(*NotMirroredError)) {
			t.Errorf("%s: %v, %v; want a NotMirroredError", args, resolved, err)
		}
	}
}

// A name without a group is a typing mistake if it is unknown. Other unknown names may be installed
// later, and what is never mirrored is no mistake.
func TestUnknownNamesWithoutAGroupAreMisspelled(t *testing.T) {
	whole := cluster()
	whole["/apis"] = strings.Replace(whole["/apis"],
		`,
			{"name":"gone.example","versions":[{"groupVersion":"gone.example/v1","version":"v1"}]}`, "", 1)
	c := documents(t, whole)
	for args, want := range map[string]string{
		"pds po":                           `the API server serves no resource "pds"; did you mean pods?; a resource that is`,
		"pods.v7":                          `the API server serves no resource "pods.v7"`,
		"pods.v7.":                         `the API server serves no resource "pods.v7."`,
		"po events gadgets.v1.example.com": "", "pds.example.com bindings": "",
	} {
		resolved, err := Resolve(deadline(t), c, strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		err = MisspelledError(resolved)
		if (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	t.Run("not while the resources of a group cannot be read", func(t *testing.T) {
		resolved, err := Resolve(deadline(t), documents(t, cluster()), []string{"pds"})
		if err == nil {
			err = MisspelledError(resolved)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDiscover(t *testing.T) {
	cached, passThrough, err := Discover(deadline(t), documents(t, cluster()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range cached {
		got = append(got, names([]*object.Resource{r}))
	}
	slices.Sort(got)
	if want := []string{"deployments.v1.apps", "gateways.v1.gateway.networking.k8s.io(custom)",
		"horizontalpodautoscalers.v1.autoscaling",
		"horizontalpodautoscalers.v2.autoscaling", "pods.v1.", "shiny.v1.apps"}; !slices.Equal(got, want) {
		t.Errorf("cached %q", got)
	}
	var refused []string
	for gvr, reason := range passThrough {
		refused = append(refused, gvr.Resource+": "+reason)
	}
	slices.Sort(refused)
	if len(refused) != 7 || !strings.Contains(strings.Join(refused, "\n"), "\nsecrets: ") {
		t.Errorf("passed through %q", refused)
	}
	gateway := cached[schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}]
	if !gateway.Selectable("spec.class") || gateway.Selectable("spec['odd']") {
		t.Error("selectable fields of the custom resource")
	}
}

func TestResource(t *testing.T) {
	c := documents(t, cluster())
	gvr := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	r, err := ReadResource(deadline(t), c, gvr)
	if err != nil || r.Kind != "Gateway" || r.Builtin || !r.Namespaced || !r.Selectable("spec.class") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, missing := range []schema.GroupVersionResource{
		{Group: gvr.Group, Version: "v1", Resource: "routes"},
		{Group: "no.example", Version: "v1", Resource: "things"},
	} {
		if _, err := ReadResource(deadline(t), c, missing); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", missing, err)
		}
	}
	var refused *NotMirroredError
	_, err = ReadResource(deadline(t), c, schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1",
		Resource: "podmetrics"})
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, "metrics-server") {
		t.Errorf("aggregated: %v", err)
	}
}

// Without the right to read APIServices and CRDs, client-go's types decide.
func TestBuiltinWithoutRights(t *testing.T) {
	answers := cluster()
	for path := range answers {
		if strings.HasPrefix(path, apiServices) || strings.HasPrefix(path, customResourceDefinitions) {
			answers[path] = "403"
		}
	}
	got, err := strictly(t, documents(t, answers), []string{"po", "gtw", "deploy", "shiny"})
	const want = "pods.v1. gateways.v1.gateway.networking.k8s.io(custom) deployments.v1.apps shiny.v1.apps(custom)"
	if err != nil || names(got) != want {
		t.Errorf("%s, %v", names(got), err)
	}
	crds := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	if !(origin{}).isBuiltin(crds) {
		t.Error("CRDs are built in")
	}
}

// A proxy that may not read discovery learns which role lets it.
func TestForbiddenDiscoveryNamesTheRole(t *testing.T) {
	c := documents(t, map[string]string{"/api": "403", "/apis": "403",
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1"}`})
	if _, err := readCatalog(deadline(t), c); !apierrors.IsForbidden(err) ||
		!strings.HasSuffix(err.Error(), "; give Spillway the rights of the cluster role system:discovery") {
		t.Error(err)
	}
}
