package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

const widgetGroup = "conformance.example.com"

var widgets = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "widgets"}

// collections are the paths of what is mirrored.
var collections = map[string]string{
	"pods":        "/api/v1/pods",
	"configmaps":  "/api/v1/configmaps",
	"secrets":     "/api/v1/secrets",
	"services":    "/api/v1/services",
	"endpoints":   "/api/v1/endpoints",
	"namespaces":  "/api/v1/namespaces",
	"nodes":       "/api/v1/nodes",
	"deployments": "/apis/apps/v1/deployments",
	"widgets":     "/apis/" + widgetGroup + "/v1/widgets",
}

// makeObjects makes what the requests are for. The namespaces beginning with o are those of W-61;
// c1 is the one of most requests; heavy is large enough for gzip.
func (w *world) makeObjects(t *testing.T) {
	t.Helper()
	w.makeDefinition(t)
	for _, name := range []string{"c1", "c2", "o", "o-x", "o0x", "o1", "heavy", stage} {
		w.makeNamespace(t, name)
	}
	w.mark(t, "old", w.put(t, configMap("c1", "a", "x", "1")))
	for _, o := range []*corev1.ConfigMap{
		configMap("c1", "b", "x", "1"), configMap("c1", "c", "y", "1"), configMap("c2", "a", "x", "1"),
		configMap("c2", "d", "z", "1"),
		configMap("o-x", "z", "x", "1"), configMap("o", "k", "x", "1"), configMap("o", "k-1", "x", "1"),
		configMap("o", "k.1", "x", "1"),
		configMap("o", "k0", "x", "1"), configMap("o", "z", "x", "1"), configMap("o0x", "z", "x", "1"),
		configMap("o1", "z", "x", "1"),
		configMap("c2", "escapes", "x", "<b>&\u2028\u2029 ü €\t\"\\ \x7f\u0001"),
	} {
		w.put(t, o)
	}
	for i := range 40 {
		w.put(t, configMap("heavy", fmt.Sprintf("block-%02d", i), "x", strings.Repeat("spillway ", 600)))
	}
	w.makeOthers(t)
}

func (w *world) makeOthers(t *testing.T) {
	t.Helper()
	ctx, options := t.Context(), metav1.CreateOptions{}
	core := w.client.CoreV1()
	for _, name := range []string{"n1", "n2"} {
		_, err := w.cp.MakeNode(ctx, name)
		must(t, err)
	}
	_, err := core.Nodes().Patch(ctx, "n2", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
		metav1.PatchOptions{})
	must(t, err)
	for name, node := range map[string]string{"p1": "n1", "p2": "n2", "p3": ""} {
		_, err := core.Pods("c1").Create(ctx, pod(name, node), options)
		must(t, err)
	}
	for name, ip := range map[string]string{"plain": "", "headless": corev1.ClusterIPNone} {
		_, err := core.Services("c1").Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}},
				Selector: map[string]string{"app": name}},
		}, options)
		must(t, err)
	}
	// deprecated, which is the point
	endpoints := w.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "endpoints"})
	_, err = endpoints.Namespace("c1").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Endpoints", "metadata": map[string]any{"name": "plain"},
	}}, options)
	must(t, err)
	for name, kind := range map[string]corev1.SecretType{"opaque": corev1.SecretTypeOpaque,
		"basic": corev1.SecretTypeBasicAuth} {
		_, err := core.Secrets("c1").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, StringData: map[string]string{"username": "u",
				"password": "p"},
		}, options)
		must(t, err)
	}
	for _, name := range []string{"d1", "d2"} {
		_, err := w.client.AppsV1().Deployments("c1").Create(ctx, deployment(name), options)
		must(t, err)
	}
	for name, color := range map[string]string{"w1": "red", "w2": "blue", "w3": ""} {
		_, err := w.dynamic.Resource(widgets).Namespace("c1").Create(ctx, widget(name, color, 3), options)
		must(t, err)
	}
}

// changeObjects makes recent history: marks mid and last are resourceVersions that both sides still
// know.
func (w *world) changeObjects(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	w.mark(t, "first", w.put(t, configMap("c1", "b", "x", "2")))
	w.mark(t, "mid", w.put(t, configMap("c1", "c", "y", "2")))
	w.put(t, configMap("c1", "t", "x", "1"))
	must(t, w.client.CoreV1().ConfigMaps("c1").Delete(ctx, "t", metav1.DeleteOptions{}))
	w.mark(t, "last", w.put(t, configMap("c1", "b", "x", "3")))
	for resource, path := range collections {
		w.mark(t, "last-"+resource, w.touch(t, resource))
		w.settle(t, path, w.marks["last-"+resource])
	}
	w.marks["token-last"] = exchange.EncodeToken(int64(exchange.Number(w.marks["last"])), "/a\x00")
	w.marks["token-mid"] = exchange.EncodeToken(int64(exchange.Number(w.marks["mid"])), "/a\x00")
	w.marks["token-old"] = exchange.EncodeToken(int64(exchange.Number(w.marks["old"])), "/a\x00")
	w.marks["token-future"] = exchange.EncodeToken(100000000, "/a\x00")
	w.marks["token-any"] = exchange.EncodeToken(-1, "/a\x00")
}

// touched is one object of each resource.
var touched = map[string]string{
	"pods": "p1", "configmaps": "a", "secrets": "opaque", "services": "plain", "endpoints": "plain", "namespaces": "c1",
	"nodes":       "n1",
	"deployments": "d1", "widgets": "w1",
}

// touch changes one object of a resource and returns its resourceVersion.
func (w *world) touch(t *testing.T, resource string) string {
	t.Helper()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	switch resource {
	case "deployments":
		gvr.Group = "apps"
	case "widgets":
		gvr.Group = widgetGroup
	}
	var client dynamic.ResourceInterface = w.dynamic.Resource(gvr).Namespace("c1")
	if resource == "namespaces" || resource == "nodes" {
		client = w.dynamic.Resource(gvr)
	}
	patch := []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`)
	o, err := client.Patch(t.Context(), touched[resource], types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	return o.GetResourceVersion()
}

// mirroring waits until a proxy answers for every mirrored resource from memory.
func (w *world) mirroring(t *testing.T, e *endpoint) {
	t.Helper()
	for _, path := range collections {
		process.Awaiting(t, e.Name+" to mirror "+path, func(ctx context.Context) error {
			a, err := e.Do(ctx, request{Target: path + "?resourceVersion=0"})
			if err == nil && (a.Status != http.StatusOK || a.Header.Get(exchange.FlowControl) != "") {
				err = fmt.Errorf("%d, from upstream: %t", a.Status, a.Header.Get(exchange.FlowControl) != "")
			}
			return err
		})
	}
}

// mark gives a resourceVersion a name.
func (w *world) mark(t *testing.T, name, version string) {
	t.Helper()
	if exchange.Number(version) == 0 {
		t.Fatalf("mark %s: %q is no resourceVersion", name, version)
	}
	w.marks[name] = version
}

// settle waits until every way to a collection shows a state that is not older than version, though
// the requests permit any.
func (w *world) settle(t *testing.T, path, version string) {
	t.Helper()
	servers := []*endpoint{w.direct, w.plain, w.secure}
	if w.newest != nil {
		servers = append(servers, w.newest)
	}
	for _, e := range servers {
		process.Awaiting(t, e.Name+" to know "+path+" at "+version, func(ctx context.Context) error {
			a, err := e.Do(ctx, request{Target: path + "?resourceVersion=0"})
			if err != nil {
				return err
			}
			version0 := listVersion(a.Body)
			if a.Status != http.StatusOK || version0 < exchange.Number(version) {
				return fmt.Errorf("%d, at %d", a.Status, version0)
			}
			return nil
		})
	}
}

// listVersion is a JSON list's own resourceVersion.
func listVersion(body []byte) uint64 {
	var list metav1.PartialObjectMetadataList
	if err := decodeJSON(body, &list); err != nil {
		return 0
	}
	return exchange.Number(list.ResourceVersion)
}

func (w *world) makeNamespace(t *testing.T, name string) {
	t.Helper()
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
}

// put creates or replaces a ConfigMap and returns its resourceVersion.
func (w *world) put(t *testing.T, o *corev1.ConfigMap) string {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps(o.Namespace)
	made, err := maps.Update(t.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		made, err = maps.Create(t.Context(), o, metav1.CreateOptions{})
	}
	must(t, err)
	return made.ResourceVersion
}

func configMap(namespace, name, app, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Data:       map[string]string{"k": value},
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: "example.com/none"}},
		},
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
			},
		},
	}
}

func widget(name, color string, size int64) *unstructured.Unstructured {
	spec := map[string]any{"size": size, "note": "<&>", "ratio": 0.5}
	if color != "" {
		spec["color"] = color
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgetGroup + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": name}},
		"spec":     spec,
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
