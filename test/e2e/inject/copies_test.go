package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// copiesPods: copies of an injected pod that kubectl makes are not injected again, whatever kubectl
// drops of them, and uninject takes the sidecar out of each.
func (c *cluster) copiesPods(t *testing.T) {
	c.register(t, c.startWebhook(t))
	client := c.warned(t)
	process.Awaiting(t, "kube-apiserver to know the webhook", func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "copied", Namespace: namespace, Labels: asked},
			Spec: corev1.PodSpec{ServiceAccountName: account,
				Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}, metav1.CreateOptions{})
		must(t, err)
		if len(pod.Spec.InitContainers) == 1 {
			return nil
		}
		must(t, client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)))
		return errors.New("not yet")
	})
	debug := func(more ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			return c.says(t, "", append([]string{"debug", "--namespace=" + namespace, "copied", "--image=busybox",
				"--attach=false", "--profile=general", "--keep-labels", "--copy-to=" + name}, more...)...)
		}
	}
	for _, row := range []struct {
		name  string
		copy  func(name string) (string, error)
		init  int    // how many init containers the copy has
		warns string // part of the warning; empty: there is none
	}{
		{"debug", debug(), 1, ""},
		{"debug-annotated", debug("--keep-annotations"), 1, ""},
		{"debug-without-init-containers", debug("--keep-init-containers=false"), 0,
			"has a volume spillway-serviceaccount, but no sidecar that mounts it: remove it with spillway uninject if it " +
				"is left from one, or rename it"},
		{"get-and-create", func(name string) (string, error) {
			text, err := c.Kubectl(t.Context(), "get", "pod", "copied", "--namespace="+namespace, "--output=json")
			must(t, err)
			return c.says(t, strings.Replace(text, `"name": "copied"`, `"name": "`+name+`"`, 1), "create", "--filename=-")
		}, 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			said, err := row.copy(row.name)
			must(t, err)
			if strings.Contains(said, "Warning: spillway") != (row.warns != "") || !strings.Contains(said, row.warns) {
				t.Errorf("kubectl says %q, want %q", said, row.warns)
			}
			pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), row.name, metav1.GetOptions{})
			must(t, err)
			if len(pod.Spec.InitContainers) != row.init {
				t.Errorf("it has %d init containers", len(pod.Spec.InitContainers))
			}
			text, err := c.Kubectl(t.Context(), "get", "pod", row.name, "--namespace="+namespace, "--output=json")
			must(t, err)
			if back := c.run(t, text, "uninject"); strings.Contains(back, "spillway-") ||
				strings.Contains(back, "127.0.0.1") {
				t.Errorf("uninjected it is %s", back)
			}
		})
	}
}

// says is what kubectl says for an input on both of its outputs.
func (c *cluster) says(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p, err := c.StartKubectl(controlplane.Streams{In: strings.NewReader(input), Out: &out, Err: &out}, args...)
	must(t, err)
	if err := p.Wait(); err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args, err, &out)
	}
	return out.String(), nil
}

// takesStreams: kubectl takes a file injected that it takes as it is: JSON as Python writes it, one
// value after another, in a List, and among YAML.
func (c *cluster) takesStreams(t *testing.T) {
	pod := func(name string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `", "namespace": "` + namespace +
			`", "annotations": {"mood": "\ud83d\ude00"}}, "spec": {"serviceAccountName": "` + account +
			`", "containers": [{"name": "app", "image": "app"}]}}`
	}
	for name, text := range map[string]string{
		"one value":         pod("one"),
		"one per line":      pod("one") + "\n" + pod("two") + "\n",
		"a List":            `{"apiVersion": "v1", "kind": "List", "items": [` + pod("one") + "," + pod("two") + "]}\n",
		"a byte order mark": "\ufeff" + pod("one"),
		"JSON, then YAML": pod("one") + "\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: two\n  namespace: " +
			namespace + "\nspec:\n  serviceAccountName: " + account + "\n  containers:\n  - name: app\n    image: app\n",
	} {
		t.Run(name, func(t *testing.T) {
			apply := func(text string) string {
				t.Helper()
				out, err := c.KubectlInput(t.Context(), text, "create", "--dry-run=server", "--validate=strict", "--output=name",
					"--filename=-")
				must(t, err)
				return out
			}
			injected := c.run(t, text, "inject", "--image=spillway:1")
			if want, got := apply(text), apply(injected); got != want ||
				strings.Count(injected, `spillway.example.com/injected`) != strings.Count(want, "\n") {
				t.Errorf("%q, want %q: %s", got, want, injected)
			}
			sameObjects(t, name, c.run(t, injected, "uninject"), text)
		})
	}
}
