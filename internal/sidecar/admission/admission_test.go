package admission

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"spillway/internal/sidecar/inject"
	"spillway/internal/sidecar/limits"
)

func newHandler() http.Handler {
	o := inject.Defaults()
	o.Image = "spillway:1"
	return Handler(o, nil, nil, zap.NewNop())
}

func post(body string) (int, string) {
	w := httptest.NewRecorder()
	newHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(body)))
	text, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(text)
}

// reviewOf is one of a pod, in JSON, with other fields of the request.
func reviewOf(pod, more string) string {
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", ` +
		`"kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", ` +
		more + `"object": ` + pod + `}}`
}

const pod = `{"metadata": {"generateName": "app-", "example.com/unknown": 1}, "spec": {"unknown": true, "containers": [
	{"name": "app", "unknown": [], "volumeMounts": [{"name": "kube-api-access-x",
	"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "unknown": 1}]}]}}`

func response(t *testing.T, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	code, text := post(body)
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != 200 || r.Kind != "AdmissionReview" ||
		r.APIVersion != "admission.k8s.io/v1" || r.Request != nil {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	if r.Response == nil || r.Response.UID != "u" || !r.Response.Allowed {
		t.Fatalf("not allowed: %s", text)
	}
	return r.Response
}

// A pod with a token gets a sidecar, and keeps what we do not know of.
func TestPatch(t *testing.T) {
	r := response(t, reviewOf(pod, ""))
	if r.PatchType == nil || *r.PatchType != admissionv1.PatchTypeJSONPatch || len(r.Warnings) > 0 {
		t.Fatalf("%+v", r)
	}
	patch, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	text, err := patch.Apply([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	var injected corev1.Pod
	if err := json.Unmarshal(text, &injected); err != nil {
		t.Fatal(err)
	}
	if len(injected.Spec.InitContainers) != 1 || injected.Spec.Containers[0].VolumeMounts[0].Name != inject.FilesVolume ||
		injected.Annotations[inject.InjectedAnnotation] == "" {
		t.Errorf("%s", text)
	}
	if !strings.Contains(string(text), `"example.com/unknown":`) || strings.Count(string(text), `"unknown"`) != 2 {
		t.Errorf("what is not known is gone: %s", text)
	}
	if again := response(t, reviewOf(string(text), "")); again.Patch != nil || len(again.Warnings) > 0 {
		t.Errorf("once more: %s", again.Patch)
	}
}

// A review that is not of a new pod, or of a pod that cannot have a sidecar, is allowed without a
// patch; there is a warning only where the pod could be corrected.
func TestNoPatch(t *testing.T) {
	f := func(body, warning string) {
		t.Helper()
		r := response(t, body)
		if r.Patch != nil || r.PatchType != nil || strings.Join(r.Warnings, "|") != warning {
			t.Errorf("%s: %s, %v; want %q", body, r.Patch, r.Warnings, warning)
		}
	}
	f(strings.Replace(reviewOf(pod, ""), "CREATE", "UPDATE", 1), "")
	f(strings.Replace(reviewOf(pod, ""), `"Pod"`, `"Service"`, 1), "")
	f(reviewOf(pod, `"subResource": "status", `), "")
	f(reviewOf(`{"spec": {"containers": [{"name": "app"}]}}`, ""), "")
	f(reviewOf(`{"metadata": {"annotations": {"spillway.example.com/inject": "disabled"}}, `+
		`"spec": {"containers": [{"name": "app"}]}}`, ""), "")
	f(reviewOf(strings.Replace(pod, `"unknown": true`, `"os": {"name": "windows"}`, 1), ""),
		"spillway: not injected: is for Windows, which Spillway is not: annotate it spillway.example.com/inject: disabled")
	f(reviewOf(`{"spec": []}`, ""),
		"spillway: not injected: the pod cannot be read: request.object.spec must not be JSON's array")
}

// What is no review is refused.
func TestNoReview(t *testing.T) {
	for _, body := range []string{"", "x", "{}",
		`{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}`,
		`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, reviewOf(pod, "")[:100],
		reviewOf(`{"a": "`+"\xff"+`"}`, "")} {
		if code, text := post(body); code != http.StatusBadRequest {
			t.Errorf("%.80s: %d %s", body, code, text)
		}
	}
}

// While it is not known what a namespace allows, and where that is too little, a pod is created
// without a sidecar, with a warning.
func TestLimitsOfNamespaces(t *testing.T) {
	sized := strings.Replace(pod, `"name": "app"`, `"name": "app", "resources": {"limits": {"memory": "1Mi"}}`, 1)
	small := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer,
		Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}}
	for want, rules := range map[string]RulesFunc{
		"spillway: not injected: the limits of the namespace are not known: away": func(string) (
			*limits.Rules, error) {
			return nil, errors.New("away")
		},
		"spillway: not injected: there is no room for a sidecar: ": func(string) (*limits.Rules, error) {
			spec := corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{small}}
			return &limits.Rules{Ranges: []*corev1.LimitRange{{Spec: spec}}}, nil
		},
	} {
		o := inject.Defaults()
		o.Image = "spillway:1"
		w := httptest.NewRecorder()
		Handler(o, nil, rules, zap.NewNop()).ServeHTTP(w,
			httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(reviewOf(sized, ""))))
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		r := answer.Response
		if !r.Allowed || r.Patch != nil || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], want) {
			t.Errorf("%+v, want %s", r, want)
		}
	}
}
