package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What Grafana's sidecar finds is the dashboard as it is in the chart, braces of legends and all.
func TestDashboardIsRenderedAsItIs(t *testing.T) {
	h := newHelm(t)
	manifest, err := h.template(t.Context(),
		"--set=monitoring.dashboard.enabled=true,monitoring.dashboard.labels.team=a",
		"--set=monitoring.dashboard.annotations.grafana_folder=Kubernetes")
	must(t, err)
	found := pick(t, objects(t, manifest), "ConfigMap", release+"-dashboard")
	if l := found.GetLabels(); l["grafana_dashboard"] != "1" || l["team"] != "a" ||
		found.GetAnnotations()["grafana_folder"] != "Kubernetes" {
		t.Errorf("labels %v, annotations %v", l, found.GetAnnotations())
	}
	text, _, err := unstructured.NestedString(found.Object, "data", "spillway.json")
	must(t, err)
	file, err := os.ReadFile(filepath.Join(h.chart, "dashboard.json"))
	must(t, err)
	if !json.Valid([]byte(text)) || !bytes.Equal(bytes.TrimSpace(file), []byte(text)) {
		t.Errorf("it is not what dashboard.json holds: %.300s", text)
	}
	manifest, err = h.template(t.Context())
	must(t, err)
	for _, o := range objects(t, manifest) {
		if o.GetName() == release+"-dashboard" {
			t.Error("there is one that nobody asked for")
		}
	}
}
