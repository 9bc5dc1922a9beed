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
		injected.Annotations[inject.InjectedAnnotation] != "true" || injected.Labels[inject.InjectedAnnotation] != "true" {
		t.Errorf("%s", text)
	}
	if !strings.Contains(string(text), `"example.com/unknown":`) || strings.Count(string(text), `"unknown"`) != 2 {
		t.Errorf("what is not known is gone: %s", text)
	}
	if again := response(t, reviewOf(string(text), "")); again.Patch != nil || len(again.Warnings) > 0 {
		t.Errorf("once more: %s", again.Patch)
	}
}

// A review that is not of a new pod, or of a pod that needs no sidecar, is allowed without a patch.
// So is a pod that cannot be read, with a warning.
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
	f(reviewOf(`{"spec": []}`, ""),
		"spillway: not injected: the pod cannot be read: request.object.spec must not be JSON's array")
}

// marked is the metadata that a pod has once it is created, and the warnings about it.
func marked(t *testing.T, metadata, spec string) (corev1.Pod, string, []string) {
	t.Helper()
	text := `{"metadata": ` + metadata + `, "spec": ` + spec + `}`
	r := response(t, reviewOf(text, ""))
	if r.Patch != nil {
		patch, err := jsonpatch.DecodePatch(r.Patch)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := patch.Apply([]byte(text))
		if err != nil {
			t.Fatalf("%v: %s", err, r.Patch)
		}
		text = string(changed)
	}
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(text), &pod); err != nil {
		t.Fatal(err)
	}
	if again := response(t, reviewOf(text, "")); again.Patch != nil {
		t.Errorf("reviewed once more, it is changed again: %s", again.Patch)
	}
	return pod, text, r.Warnings
}

const (
	tokenMount = `"volumeMounts": [{"name": "kube-api-access-x", ` +
		`"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]`
	goodSpec    = `{"containers": [{"name": "app", ` + tokenMount + `}]}`
	windowsSpec = `{"os": {"name": "windows"}, "containers": [{"name": "app", ` + tokenMount + `}]}`
	bareSpec    = `{"containers": [{"name": "app"}]}`
	windows     = "is for Windows, which Spillway is not: annotate it spillway.example.com/inject: disabled"
)

// A pod that unexpectedly gets no sidecar says why, as its warning does.
func TestReasonIsOnThePod(t *testing.T) {
	for _, metadata := range []string{`{"name": "a"}`, `{"name": "a", "labels": {"app": "a"}}`,
		`{"name": "a", "annotations": {"b": "c"}}`, `{"namespace": "a", "annotations": {}}`} {
		pod, text, warnings := marked(t, metadata, windowsSpec)
		if pod.Annotations[inject.NotInjectedAnnotation] != windows || len(warnings) != 1 ||
			warnings[0] != "spillway: not injected: "+windows || len(pod.Spec.InitContainers) > 0 {
			t.Errorf("%s, %q", text, warnings)
		}
		if strings.Contains(metadata, `"c"`) != (pod.Annotations["b"] == "c") {
			t.Errorf("what it had is gone: %s", text)
		}
	}
	// What fills all room stays, and the pod is created.
	full := `{"name": "a", "annotations": {"b": "` + strings.Repeat("c", 256<<10-10) + `"}}`
	if pod, _, warnings := marked(t, full, windowsSpec); len(pod.Annotations) != 1 || len(warnings) != 1 {
		t.Errorf("%d annotations, %q", len(pod.Annotations), warnings)
	}
	large := `{"name": "a", "labels": {"b": "` + strings.Repeat("c", annotatedLimitBytes) + `"}}`
	if pod, _, warnings := marked(t, large, windowsSpec); len(pod.Annotations) != 0 || len(warnings) != 1 {
		t.Errorf("%d annotations, %q", len(pod.Annotations), warnings)
	}
}

// What a pod has copied from another one does not tell what is untrue of it.
func TestStaleMarksGo(t *testing.T) {
	stale := `"annotations": {"b": "c", "spillway.example.com/not-injected": "it was full", ` +
		`"spillway.example.com/injected": "true"}, "labels": {"app": "a", "spillway.example.com/injected": "true"}`
	f := func(name, metadata, spec string, wantInjected bool, wantReason string) {
		t.Helper()
		pod, text, _ := marked(t, metadata, spec)
		wantLabel := wantInjected || strings.Contains(metadata, "ownerReferences")
		_, isAnnotated := pod.Annotations[inject.InjectedAnnotation]
		if isAnnotated != wantInjected || (pod.Labels[inject.InjectedAnnotation] != "") != wantLabel ||
			pod.Annotations[inject.NotInjectedAnnotation] != wantReason || pod.Annotations["b"] != "c" {
			t.Errorf("%s: %s", name, text)
		}
	}
	f("now injected", `{"name": "a", `+stale+`}`, goodSpec, true, "")
	f("now for another reason", `{"name": "a", `+stale+`}`, windowsSpec, false, windows)
	f("now needless", `{"name": "a", `+stale+`}`, bareSpec, false, "")
	f("now unwanted", `{"name": "a", `+strings.Replace(stale, "{", `{"spillway.example.com/inject": "disabled", `, 1)+`}`,
		goodSpec, false, "")
	// A controller that selected its pods by the label would make another one again and again.
	f("with an owner", `{"name": "a", "ownerReferences": [{"kind": "ReplicaSet"}], `+stale+`}`, windowsSpec, false,
		windows)

	// A pod with a sidecar, as spillway inject or a copy leaves it, gets the marks of one.
	_, text, _ := marked(t, `{"name": "a"}`, goodSpec)
	var injected struct{ Spec json.RawMessage }
	if err := json.Unmarshal([]byte(text), &injected); err != nil {
		t.Fatal(err)
	}
	f("with a sidecar", `{"name": "a", `+stale+`}`, string(injected.Spec), true, "")
	f("with a sidecar alone", `{"name": "a", "annotations": {"b": "c"}}`, string(injected.Spec), true, "")
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
		reason := strings.TrimPrefix(want, "spillway: not injected: ")
		if !r.Allowed || !strings.HasPrefix(string(r.Patch), `[{"op":"add","path":"/metadata/annotations","value":`+
			`{"spillway.example.com/not-injected":"`+reason) || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], want) {
			t.Errorf("%+v, %s, want %s", r, r.Patch, want)
		}
	}
}
