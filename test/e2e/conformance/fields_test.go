package conformance

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// labels are all that some built-in resource can be selected by, and some that none can (W-152).
var labels = []string{
	"metadata.name", "metadata.namespace", "spec.nodeName", "spec.host", "spec.restartPolicy", "spec.schedulerName",
	"spec.serviceAccountName",
	"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName", "spec.unschedulable",
	"type", "spec.clusterIP",
	"spec.type", "status.replicas", "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
	"involvedObject.uid",
	"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
	"reportingComponent", "source",
	"regarding.kind", "regarding.name", "reportingController", "status.successful", "spec.signerName", "spec.podName",
	"spec.driver", "spec.pool.name",
	"name", "zzz", "metadata.uid", "spec", "status.phase ",
}

// unselectable are those of labels that nothing can be selected by.
var unselectable = []string{"name", "zzz", "metadata.uid", "spec", "status.phase "}

// testFields lists every watchable built-in resource, in every version, by every field: what is
// selected, and how the rest is refused (W-152, W-153, W-154).
func (s *suite) testFields(t *testing.T) {
	e := s.onDemand(t)
	var accepted sync.Map
	t.Run("every resource", func(t *testing.T) {
		for _, gvr := range s.watchable(t) {
			t.Run(gvr.GroupVersion().String()+"/"+gvr.Resource, func(t *testing.T) {
				t.Parallel()
				mine := gvr.Resource != "events" // which are never mirrored
				if mine {
					awaitMirror(t, e, collection(gvr))
				}
				s.askFields(t, e, gvr, mine, &accepted)
			})
		}
	})
	for _, label := range labels {
		_, some := accepted.Load(strings.ReplaceAll(label, " ", "%20"))
		if none := slices.Contains(unselectable, label); some == none && s.skew == nil {
			t.Errorf("%q is accepted somewhere: %v", label, some)
		}
	}
}

// renewals bounds how often leases are requested again: a kube-apiserver renews its own every ten
// seconds, perhaps between the two answers.
const renewals = 3

func (s *suite) askFields(t *testing.T, e *endpoint, gvr schema.GroupVersionResource, mirrored bool,
	accepted *sync.Map) {
	by := upstream
	if mirrored {
		by = memory
	}
	ask := func(query string) (ok bool) {
		s.slots <- struct{}{}
		defer func() { <-s.slots }()
		one := get("", "", collection(gvr)+query, either, anyStatus)
		result := s.ask(t, e, one)
		for tries := 1; gvr.Resource == "leases" && len(result.Problems) > 0 && tries < renewals; tries++ {
			result = s.ask(t, e, one)
		}
		for _, problem := range result.Problems {
			t.Errorf("%s\n%s", result.Request.Target, problem)
		}
		ok = result.Direct.Status == http.StatusOK
		if ok && s.skew == nil && (result.By() == upstream) != (by == upstream) {
			t.Errorf("%s: %v", result.Request.Target, result.By())
		}
		return ok
	}
	for _, label := range labels {
		label = strings.ReplaceAll(label, " ", "%20")
		if ask("?resourceVersion=0&fieldSelector=" + label + "%3Dx") {
			accepted.Store(label, true)
			ask("?resourceVersion=0&fieldSelector=" + label + "!%3Dx")
			ask("?resourceVersion=0&fieldSelector=" + label + "%3D")
		} else {
			ask("?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=" + label + "%3Dx")
		}
	}
	s.show(t, "W-152 W-153 W-154", by)
}

// watchable are the built-in resources that can be watched, in every version that is served.
func (s *suite) watchable(t *testing.T) []schema.GroupVersionResource {
	t.Helper()
	_, lists, err := s.client.Discovery().ServerGroupsAndResources()
	must(t, err)
	var all []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		if strings.HasSuffix(gv.Group, ".example.com") {
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "watch") && slices.Contains(r.Verbs, "list") {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("the API server serves %d resources", len(all))
	}
	return all
}

// collection is the path of a resource in all namespaces.
func collection(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// testVersions compares two versions of one kind: what is stored once is shown in two ways, each
// with its own bytes, bookmarks and lists (W-234).
func (s *suite) testVersions(t *testing.T) {
	e := s.onDemand(t)
	scalers := s.dynamic.Resource(schema.GroupVersionResource{Group: "autoscaling", Version: "v2",
		Resource: "horizontalpodautoscalers"}).Namespace("c1")
	_, err := scalers.Create(t.Context(), scaler("h1", 3), metav1.CreateOptions{})
	must(t, err)
	for _, version := range []string{"v1", "v2"} {
		path := "/apis/autoscaling/" + version + "/horizontalpodautoscalers"
		const named = "/apis/autoscaling/%/namespaces/c1/horizontalpodautoscalers/h1?resourceVersion=0"
		t.Run(version, func(t *testing.T) {
			awaitMirror(t, e, path)
			s.runAll(t, e, over("", []scenario{
				get("list", "W-234", path+"?resourceVersion=0", memory, 0),
				get("get", "W-234", strings.Replace(named, "%", version, 1), memory, 0),
				get("watch", "W-110 W-234", path+"?watch=1&timeoutSeconds=1&resourceVersion=0"+marked, memory, 0),
				get("watch-list", "W-110 W-234", path+"?watch=1&timeoutSeconds=7"+informer, memory, 0),
				get("field", "W-152 W-234", path+"?resourceVersion=0&fieldSelector=metadata.name%3Dh1", memory, 0),
				get("no such field", "W-154 W-234", path+"?resourceVersion=0&fieldSelector=spec.maxReplicas%3D3", upstream, 400),
			}))
			t.Run("live", func(t *testing.T) {
				count := 0
				s.storyOf(t, e, "W-234", path+"?watch=1&timeoutSeconds=600&resourceVersion="+s.now(t, path), func(o event) bool {
					count++
					return count%2 == 0
				}, func() {
					name := "live-" + version
					_, err := scalers.Create(t.Context(), scaler(name, 4), metav1.CreateOptions{})
					must(t, err)
					must(t, scalers.Delete(t.Context(), name, metav1.DeleteOptions{}))
				})
			})
		})
	}
}

func scaler(name string, most int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d1"},
			"minReplicas":    int64(1), "maxReplicas": most,
			"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{
				"name": "memory", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(50)},
			}}},
		},
	}}
}
