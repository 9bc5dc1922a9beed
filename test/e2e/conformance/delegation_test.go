package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

const (
	takenGroup = "taken." + widgetGroup // defined here, and then answered for by another server
	otherGroup = "other." + widgetGroup // another server's from the start
)

// testDelegation has another server answer for a group, from the start and from some time on: what
// it answers for passes through, and what was mirrored before ends.
func (s *suite) testDelegation(t *testing.T) {
	e := s.onDemand(t)
	service := s.otherServer(t)
	services := s.dynamic.Resource(apiServices)
	spec := func(group string) map[string]any {
		return map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": service,
		}
	}
	path := func(group string) string { return "/apis/" + group + "/v1/things" }
	t.Run("from the start", func(t *testing.T) {
		_, err := services.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": "v1." + otherGroup}, "spec": spec(otherGroup),
		}}, metav1.CreateOptions{})
		must(t, err)
		s.same(t, e, "W-234", request{Target: path(otherGroup) + "?resourceVersion=0"}, http.StatusOK,
			saying("another server"))
		s.run(t, e, get("", "W-234", path(otherGroup)+"/thing", upstream, 0))
	})
	t.Run("later", func(t *testing.T) {
		s.makeThings(t)
		awaitMirror(t, e, path(takenGroup))
		ctx := t.Context()
		st, err := e.open(ctx, request{Target: path(takenGroup) + "?watch=1&timeoutSeconds=600&resourceVersion=0"})
		must(t, err)
		defer st.cancel()
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": nil}},
			"spec":     spec(takenGroup),
		})
		must(t, err)
		_, err = services.Patch(ctx, "v1."+takenGroup, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
		for range st.lines { // to its end
		}
		if st.err != nil {
			t.Errorf("the stream was cut: %v", st.err)
		}
		s.same(t, e, "W-234", request{Target: path(takenGroup) + "?resourceVersion=0"}, http.StatusOK,
			saying("another server"))
		// kube-apiserver registers its own again where there is none.
		must(t, services.Delete(ctx, "v1."+takenGroup, metav1.DeleteOptions{}))
		s.settleOn(t, e, path(takenGroup))
	})
}

// saying wants something in an answer.
func saying(text string) func(*answer) error {
	return func(a *answer) error {
		if !bytes.Contains(a.Body, []byte(text)) {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return nil
	}
}

// makeThings defines things in the group that is taken over later, and makes one.
func (s *suite) makeThings(t *testing.T) {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.cp.Config(controlplane.Admin))
	must(t, err)
	keep := true
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things." + takenGroup},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: takenGroup, Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &keep,
					}},
				}},
			},
		}, metav1.CreateOptions{})
	must(t, err)
	things := s.dynamic.Resource(schema.GroupVersionResource{Group: takenGroup, Version: "v1", Resource: "things"})
	process.Awaiting(t, "the things to be served", func(ctx context.Context) error {
		_, err := things.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": takenGroup + "/v1", "kind": "Thing", "metadata": map[string]any{"name": "thing"},
		}}, metav1.CreateOptions{})
		return err
	})
}

// otherServer is an API server that answers everything with the same, as an APIService names it.
func (s *suite) otherServer(t *testing.T) map[string]any {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","message":"another server"}`)
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	number, err := strconv.ParseInt(port, 10, 64)
	must(t, err)
	_, err = s.client.CoreV1().Services("c1").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "other-server"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	must(t, err)
	return map[string]any{"namespace": "c1", "name": "other-server", "port": number}
}
