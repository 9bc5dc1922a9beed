package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// kubectl is one of a version, with a kubeconfig and a namespace.
type kubectl struct{ program, kubeconfig, cache, namespace, node string }

// TestKubectl runs commands of kubectl directly and through Spillway. They print the same.
func TestKubectl(t *testing.T) {
	cp, client := startControlPlane(t)
	authority, err := controlplane.NewAuthority()
	must(t, err)
	pair, err := authority.IssueServer("spillway")
	must(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(t, os.WriteFile(cert, pair.Cert, 0o600))
	must(t, os.WriteFile(key, pair.Key, 0o600))
	p := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin), "--listen=",
		"--listen-tls=127.0.0.1:0", "--tls-cert-file="+cert, "--tls-private-key-file="+key,
		"--resources=configmaps,pods,nodes")
	through := filepath.Join(dir, "kubeconfig")
	config := rest.CopyConfig(cp.Config(controlplane.Admin))
	config.Host, config.CAData = p.TLS, authority.PEM()
	must(t, controlplane.WriteKubeconfig(through, config))
	w := &cluster{client: client}
	for version, program := range process.Kubectls(t) {
		t.Run(version, func(t *testing.T) {
			outputs := map[string]string{}
			for way, kubeconfig := range map[string]string{"direct": cp.Kubeconfig(controlplane.Admin), "through": through} {
				k := &kubectl{program, kubeconfig, t.TempDir(), way + "-" + strings.ReplaceAll(version, ".", "-"), ""}
				k.node = k.namespace
				_, err := cp.MakeNode(t.Context(), k.node)
				must(t, err)
				outputs[way] = k.session(t, w)
			}
			if outputs["direct"] != outputs["through"] {
				t.Errorf("through Spillway it prints\n%s\ndirectly\n%s", outputs["through"], outputs["direct"])
			}
			t.Logf("both print\n%s", outputs["through"])
		})
	}
	if n := process.Metric(t, p.Metrics, "spillway_watch_terminations_total"); n == 0 {
		t.Error("no watch was served from memory")
	}
}

// session is what a few commands print.
func (k *kubectl) session(t *testing.T, w *cluster) string {
	t.Helper()
	var printed strings.Builder
	do := func(input string, args ...string) {
		t.Helper()
		out, err := k.command(t.Context(), input, args...).CombinedOutput()
		lines := slices.Collect(bytes.Lines(klog.ReplaceAll(out, nil)))
		if args[0] == "drain" { // which evicts pods in any order
			slices.SortFunc(lines, bytes.Compare)
		}
		fmt.Fprintf(&printed, "$ kubectl %s\n%s%s\n", strings.Join(args, " "), bytes.Join(lines, nil), exit(err))
	}
	manifest := func(names ...string) string {
		var b strings.Builder
		for _, name := range names {
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {app: a}}\n", name)
		}
		return b.String()
	}
	do("", "create", "namespace", k.namespace)
	watches := []*watch{
		k.watch(t, "get", "configmaps", "--watch", "--selector=app"),
		k.watch(t, "get", "configmaps", "--watch", "--selector=app", "--output=name"),
		k.watch(t, "get", "configmaps", "--watch-only", "--selector=app", "--output-watch-events",
			`--output=jsonpath={.type} {.object.metadata.name}{"\n"}`),
	}
	process.Awaiting(t, "watches to be open", func(ctx context.Context) error {
		// An object that each of them shows, made until it does: a watch may open after it was.
		for _, args := range [][]string{{"create", "configmap", "probe"}, {"label", "configmap", "probe", "app=a"},
			{"delete", "configmap", "probe"}} {
			_ = k.command(ctx, "", args...).Run()
		}
		for _, watch := range watches {
			if !bytes.Contains(watch.log.Text(), []byte("probe")) {
				return errors.New("one is not")
			}
		}
		return nil
	})
	do(manifest("one", "two"), "apply", "-f", "-")
	do("", "annotate", "configmap", "two", "changed=yes")
	do(manifest("one"), "apply", "--prune", "--selector=app=a", "-f", "-")
	do("", "wait", "--for=delete", "configmap/two", "--timeout=60s")
	do("", "wait", "--for=jsonpath={.metadata.name}=one", "configmap/one", "--timeout=60s")
	for _, name := range []string{"a", "b"} {
		_, err := w.client.CoreV1().Pods(k.namespace).Create(t.Context(), pod(name, k.node), metav1.CreateOptions{})
		must(t, err)
	}
	waiting := k.watch(t, "wait", "--for=condition=Ready", "pod/a", "--timeout=60s")
	_, err := w.client.CoreV1().Pods(k.namespace).Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{},
		"status")
	must(t, err)
	<-waiting.Done
	fmt.Fprintf(&printed, "wait: %s%s\n", klog.ReplaceAll(waiting.log.Text(), nil), exit(waiting.Err))
	do("", "top", "pods")
	do("", "drain", k.node, "--force", "--ignore-daemonsets", "--pod-selector=a=b")
	do("", "drain", k.node, "--force", "--ignore-daemonsets", "--timeout=60s")
	do("", "get", "nodes", k.node, "--output=jsonpath={.spec.unschedulable}")
	do("", "uncordon", k.node)
	do("", "get", "pods", "--output=name")
	do(manifest("last"), "apply", "-f", "-")
	for _, watch := range watches {
		fmt.Fprintf(&printed, "$ kubectl %s\n%s\n", watch.args, watch.until(t, "last"))
	}
	return strings.ReplaceAll(printed.String(), k.namespace, "NAMESPACE")
}

func exit(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (k *kubectl) command(ctx context.Context, input string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program,
		append([]string{"--kubeconfig=" + k.kubeconfig, "--namespace=" + k.namespace}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+k.cache, "KUBECONFIG=")
	cmd.Stdin = strings.NewReader(input)
	return cmd
}

// watch is a kubectl that goes on.
type watch struct {
	*process.Child
	args string
	log  *process.Log
}

func (k *kubectl) watch(t *testing.T, args ...string) *watch {
	t.Helper()
	w := &watch{log: process.NewLog(t), args: strings.Join(args, " ")}
	var err error
	w.Child, err = process.Start(k.command(context.WithoutCancel(t.Context()), "", args...), nil, w.log.File)
	must(t, err)
	t.Cleanup(func() { w.Stop(5 * time.Second) })
	return w
}

var (
	// age is the last column of tables.
	age = regexp.MustCompile(`(?m) +(<invalid>|\d+[smh])+$`)
	// klog is the head of log lines: time, thread and line.
	klog  = regexp.MustCompile(`(?m)^[IWE]\d{4} [\d:.]+ +\d+ `)
	probe = regexp.MustCompile(`(?m)^.*probe.*\n`)
)

// until is what the watch printed when it has printed text.
func (w *watch) until(t *testing.T, text string) string {
	t.Helper()
	process.Awaiting(t, w.args+" to print "+text, func(context.Context) error {
		if !bytes.Contains(w.log.Text(), []byte(text+" ")) && !bytes.Contains(w.log.Text(), []byte(text+"\n")) {
			return errors.New("not yet")
		}
		return nil
	})
	w.Stop(5 * time.Second)
	return string(probe.ReplaceAll(age.ReplaceAll(w.log.Text(), nil), nil))
}
