package fakeapiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/fakeapiserver/rawclient"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
)

// clientset is a typed client whose idle connections are closed with the test.
func clientset(t *testing.T, s *Server) *kubernetes.Clientset {
	t.Helper()
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWritesByClientGo(t *testing.T) {
	s := server(t, Options{})
	ctx, maps := deadline(t), clientset(t, s).CoreV1().ConfigMaps("n")
	a, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	if err != nil || a.UID == "" || a.ResourceVersion != "2" || a.Namespace != "n" {
		t.Fatalf("create: %v %v", a, err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}
	b := a.DeepCopy()
	b.Data["k"] = "w"
	if b, err = maps.Update(ctx, b, metav1.UpdateOptions{}); err != nil || b.ResourceVersion != "3" || b.UID != a.UID {
		t.Errorf("update: %v %v", b, err)
	}
	if _, err := maps.Update(ctx, a, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v", err)
	}
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"data":{"m":"1","k":null}}`,
		types.StrategicMergePatchType: `{"data":{"s":"1"}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/data/j","value":"1"}]`,
	} {
		if _, err := maps.Patch(ctx, "a", kind, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if a, _ = maps.Get(ctx, "a", metav1.GetOptions{}); len(a.Data) != 3 {
		t.Errorf("after the patches: %v", a.Data)
	}
	wrong := types.UID("x")
	if err := maps.Delete(ctx, "a",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v", err)
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("second delete: %v", err)
	}
	g, err := maps.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "g-", Labels: map[string]string{"a": "b"}}},
		metav1.CreateOptions{})
	if err != nil || len(g.Name) != 7 {
		t.Errorf("generated name: %v %v", g, err)
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a=b"}); err != nil ||
		len(s.List(ConfigMaps)) != 0 {
		t.Errorf("delete collection: %v, left %v", err, s.List(ConfigMaps))
	}
}

func TestCustomResourceByDynamicClient(t *testing.T) {
	s := server(t, Options{})
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	d, err := dynamic.NewForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	widgets := d.Resource(Widgets).Namespace("n")
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"color": "red", "size": int64(3)},
	}}
	if w, err = widgets.Create(deadline(t), w, metav1.CreateOptions{}); err != nil || w.GetGeneration() != 1 {
		t.Fatalf("create: %v %v", w, err)
	}
	list, err := widgets.List(deadline(t), metav1.ListOptions{FieldSelector: "spec.color=red,spec.size=3"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("list by field: %v %v", list, err)
	}
}

// send makes one request of any method.
func send(t *testing.T, s *Server, method, path, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(deadline(t), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	client := s.Client()
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

func TestRefusedWrites(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	const js, maps = "application/json", "/api/v1/namespaces/n/configmaps"
	for _, tt := range []struct {
		method, path, contentType, body string
		code                            int
		message                         string
	}{
		{"PUT", maps, js, "{}", 405, "the server does not allow this method on the requested resource"},
		{"POST", maps + "/a", js, "{}", 405, "does not allow"},
		{"OPTIONS", maps, js, "", 405, "does not allow"},
		{"GET", maps + "/a/scale", js, "", 405, "does not allow"},
		{"POST", maps, js, "{", 400, "unrecognized"},
		{"POST", maps, js, `{"kind":"Pod"}`, 400, "cannot be handled as a ConfigMap"},
		{"POST", maps, js, `{"apiVersion":"v2"}`, 400, "does not match the expected API version"},
		{"POST", maps, js, `{"metadata":{"name":"b","namespace":"other"}}`, 400, "does not match the namespace"},
		{"POST", maps, js, `{"metadata":{}}`, 400, "name or generateName"},
		{"POST", maps + "?dryRun=All", js, `{"metadata":{"name":"b"}}`, 400, "no dry run"},
		{"POST", maps, "application/vnd.kubernetes.protobuf", "k8s", 415, "unknown format"},
		{"PUT", maps + "/a", js, `{"metadata":{"name":"b"}}`, 400, "does not match the name on the URL"},
		{"PUT", maps + "/zz", js, `{}`, 404, `configmaps \"zz\" not found`},
		{"PATCH", maps + "/a", "application/apply-patch+yaml", "{}", 415, "unknown format"},
		{"PATCH", maps + "/a", "application/merge-patch+json", "{", 400, ""},
	} {
		code, body := send(t, s, tt.method, tt.path, tt.contentType, tt.body)
		if code != tt.code || !strings.Contains(body, tt.message) {
			t.Errorf("%s %s %s: want %d %q, got %d %s", tt.method, tt.path, tt.body, tt.code, tt.message, code, body)
		}
	}
}

func TestDiscovery(t *testing.T) {
	s := server(t, Options{})
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil || len(groups) != 4 {
		t.Fatalf("groups: %v %v", groups, err)
	}
	verbs := map[string]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			verbs[l.GroupVersion+"/"+r.Name] = r.Verbs.String()
		}
	}
	if !strings.Contains(verbs["example.com/v1/widgets"], "watch") ||
		!strings.Contains(verbs["apps/v1/deployments"], "list") ||
		verbs["v1/componentstatuses"] != "[get list]" {
		t.Errorf("verbs: %v", verbs)
	}
	s.SetVersion("v1.38.0")
	if v, err := d.ServerVersion(); err != nil || v.GitVersion != "v1.38.0" {
		t.Errorf("version: %v %v", v, err)
	}
	wantBody(t, get(t, s, "/readyz"), 200, "ok")
	var g metav1.APIGroup
	if err := json.Unmarshal(get(t, s, "/apis/apps").Body, &g); err != nil || g.Name != "apps" {
		t.Errorf("group: %v %v", g, err)
	}
}

func TestHandle(t *testing.T) {
	s := server(t, Options{})
	s.Handle("/apis/authentication.k8s.io/",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if l := get(t, s, "/apis/authentication.k8s.io/v1/tokenreviews",
		rawclient.Header("Impersonate-User", "u")); l.Status != http.StatusTeapot {
		t.Errorf("got %d", l.Status)
	}
	if r := s.Requests(); len(r) != 1 || r[0].Header.Get("Impersonate-User") != "u" {
		t.Errorf("log: %+v", r)
	}
}
