package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/test/framework/process"
)

// A version with build metadata, as Flux and others append it, gives labels and an image that are
// valid.
func TestVersionsMayHaveBuildMetadata(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	dir := t.TempDir()
	_, err := h.run(t.Context(), "package", h.chart, "--version=1.0.0+3fa2c1d", "--app-version=1.0.0+3fa2c1d."+
		strings.Repeat("0", 60), "--destination="+dir)
	must(t, err)
	manifest, err := h.templateOf(t.Context(), filepath.Join(dir, "spillway-1.0.0+3fa2c1d.tgz"),
		"--set=tls.generated.withoutCluster=true")
	must(t, err)
	_, err = cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--dry-run=server", "--validate=strict",
		"-f=-")
	must(t, err)
	if label := pick(t, objects(t, manifest), "Deployment", release).GetLabels()["helm.sh/chart"]; label !=
		"spillway-1.0.0_3fa2c1d" {
		t.Errorf("helm.sh/chart is %q", label)
	}
}

// A parent chart has this one under a condition, and values for all its charts.
func TestUmbrellaChartWithCondition(t *testing.T) {
	h := newHelm(t)
	parent := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n- name: spillway\n  version: '*'\n" +
			"  condition: spillway.enabled\n",
		"values.yaml": "global: {team: a}\nspillway:\n  enabled: true\n  tls: {generated: {withoutCluster: true}}\n",
	} {
		must(t, os.WriteFile(filepath.Join(parent, name), []byte(text), 0o600))
	}
	must(t, os.CopyFS(filepath.Join(parent, "charts", "spillway"), os.DirFS(filepath.Join(process.Repository(t), "charts",
		"spillway"))))
	for enabled, want := range map[string]int{"true": 1, "false": 0} {
		manifest, err := h.templateOf(t.Context(), parent, "--set=spillway.enabled="+enabled)
		must(t, err)
		if n := strings.Count(manifest, "\nkind: Deployment\n"); n != want {
			t.Errorf("enabled %s: %d Deployments", enabled, n)
		}
	}
}

// No webhook configuration selects a pod of the chart's own, whatever the labels of its namespace
// and the values are: with failurePolicy Fail the webhook would keep itself from ever starting.
func TestWebhookNeverSelectsItself(t *testing.T) {
	h := newHelm(t)
	selectors := podSelectors(t, h)
	for name, values := range settings {
		manifest, err := h.template(t.Context(), values...)
		must(t, err)
		for _, o := range objects(t, manifest) {
			pod := o
			switch o.GetKind() {
			case "Deployment", "DaemonSet":
				pod = podOf(t, o)
			case "Pod":
			default:
				continue
			}
			for _, selector := range selectors {
				if selector.Matches(labels.Set(pod.GetLabels())) {
					t.Errorf("%s: %s %s is selected by %s", name, o.GetKind(), o.GetName(), selector)
				}
			}
		}
	}
}

// podSelectors are those of the webhooks; namespaces are taken to be selected.
func podSelectors(t *testing.T, h *helm) (all []labels.Selector) {
	t.Helper()
	manifest, err := h.template(t.Context(), "--set=mode=sidecar")
	must(t, err)
	configuration := pick(t, objects(t, manifest), "MutatingWebhookConfiguration", namespace+"."+release)
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	must(t, err)
	for _, hook := range hooks {
		text, err := json.Marshal(hook.(map[string]any)["objectSelector"])
		must(t, err)
		var by metav1.LabelSelector
		must(t, json.Unmarshal(text, &by))
		selector, err := metav1.LabelSelectorAsSelector(&by)
		must(t, err)
		if selector.Empty() {
			t.Fatal("a webhook selects all pods")
		}
		all = append(all, selector)
	}
	if len(all) != 2 {
		t.Fatalf("%d webhooks", len(all))
	}
	return all
}
