package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"spillway/test/framework/process"
)

// helm is the program, and the chart that it is about.
type helm struct {
	program, chart string
	kubeconfig     string // of the cluster that it installs into; none when empty
}

func newHelm(t *testing.T) *helm {
	t.Helper()
	root := process.Repository(t)
	h := &helm{program: filepath.Join(root, "bin", "tools", "helm"), chart: filepath.Join(root, "charts", "spillway")}
	if _, err := os.Stat(h.program); err != nil {
		t.Fatalf("%v: run make tools", err)
	}
	return h
}

// run runs helm and returns what it printed. The error holds what it said on standard error.
func (h *helm) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %v: %w: %s", args, err, stderr.String())
	}
	return stdout.String(), nil
}

// release and namespace are those of all that is rendered here.
const (
	release   = "spillway"
	namespace = "spillway-system"
)

// template renders the chart with values, given as flags of helm. There is no cluster to keep a CA
// in.
func (h *helm) template(ctx context.Context, values ...string) (string, error) {
	return h.templateOf(ctx, h.chart, append([]string{"--set=tls.generated.withoutCluster=true"}, values...)...)
}

// templateOf renders any chart with values.
func (h *helm) templateOf(ctx context.Context, chart string, values ...string) (string, error) {
	return h.run(ctx, append([]string{"template", release, chart, "--namespace=" + namespace}, values...)...)
}

// objects are what a manifest holds.
func objects(t *testing.T, manifest string) (all []*unstructured.Unstructured) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(o); err != nil {
			break
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		t.Fatalf("nothing is rendered: %s", manifest)
	}
	return all
}

// pick is the one object of a kind and name.
func pick(t *testing.T, all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}
