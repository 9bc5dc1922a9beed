package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/buildah"
	"spillway/test/framework/node"
	"spillway/test/framework/process"
)

const (
	release     = "spillway"
	namespace   = "spillway-system"
	imageTag    = "spillway:1"
	clientImage = "localhost/incluster:1"
	shellImage  = "localhost/busybox:1"
	patience    = "3m"
)

func TestMain(m *testing.M) {
	node.Main()
	os.Exit(m.Run())
}

// cluster is two nodes, and what the tests need to change what is on them.
type cluster struct {
	*node.Node
	client kubernetes.Interface
	root   string // of the repository
}

// TestCluster starts one cluster for all tests, which come one after another.
func TestCluster(t *testing.T) {
	node.Require(t)
	store := buildah.New(t)
	dir := t.TempDir()
	archive, incluster := filepath.Join(dir, "spillway.tar"), filepath.Join(dir, "incluster")
	store.Build(imageTag, "VERSION=v1.0.0")
	store.Archive(imageTag, archive)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", incluster, "../inject/incluster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	busybox, err := exec.LookPath("busybox") // static, which store has needed, too
	must(t, err)
	n, err := node.Start(t.Context(), node.Options{Workers: 1, Archives: []string{archive}, Log: t.Output(),
		Images: []node.Image{{Name: clientImage, Program: incluster, User: "65532:65532"},
			{Name: shellImage, Program: busybox, User: "65532:65532",
				Commands: []string{"cat", "httpd", "mkfifo", "sh", "tar", "test"}}}})
	must(t, err)
	t.Cleanup(func() { must(t, n.Stop()) })
	config := n.Config()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	c := &cluster{Node: n, client: client, root: process.Repository(t)}
	c.grant(t, metav1.NamespaceDefault)

	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"cluster", c.testCluster}, {"DaemonSet", c.testDaemonSet}, {"loadShedding", c.testLoadShedding},
		{"sidecar", c.testSidecar},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() && (test.name == "loadShedding" || test.name == "DaemonSet") {
				t.Skip("the chart's test renders it; here it is seen in the long form")
			}
			defer func() {
				if t.Failed() {
					c.show(t)
				}
			}()
			test.run(t)
		})
	}
}

// helm runs helm, and returns what it printed.
func (c *cluster) helm(t *testing.T, args ...string) string {
	t.Helper()
	return c.command(t, filepath.Join(c.root, "bin", "tools", "helm"), append([]string{"--namespace=" + namespace},
		args...)...)
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.command(t, filepath.Join(c.root, "bin", "controlplane", "kubectl"), args...)
}

func (c *cluster) command(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...) // not by the test's context, which ends before its cleanup
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

// install installs the chart in a mode, and takes it away at the end of the test.
func (c *cluster) install(t *testing.T, mode string, values ...string) {
	t.Helper()
	started := time.Now()
	c.helm(t, append([]string{"install", release, filepath.Join(c.root, "charts", "spillway"), "--create-namespace",
		"--wait", "--timeout=" + patience, "--set=mode=" + mode, "--set-string=image.tag=1",
		"--set=image.registry=localhost"}, values...)...)
	t.Logf("Ready %.1f s after helm install", time.Since(started).Seconds())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), process.Patience) // the test's own has ended
		defer cancel()
		c.helm(t, "uninstall", release, "--wait")
		must(t, c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
		for {
			if _, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// show logs what helps to see why a test failed.
func (c *cluster) show(t *testing.T) {
	t.Helper()
	t.Log(c.kubectl(t, "get", "pods", "--all-namespaces", "--output=wide"))
	t.Log(c.kubectl(t, "get", "events", "--all-namespaces", "--field-selector=type=Warning"))
	pods, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		t.Logf("%s:\n%s", pod.Name, c.log(t, &pod, pod.Spec.Containers[0].Name))
	}
}

// log is what a container has said so far; an error is part of it.
func (c *cluster) log(t *testing.T, pod *corev1.Pod, container string) string {
	t.Helper()
	text, err := c.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: container}).DoRaw(t.Context())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// pods are those of a namespace with a label that are not about to end.
func (c *cluster) pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var alive []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			alive = append(alive, pod)
		}
	}
	return alive, nil
}

// ready returns why not all of a number of pods are.
func (c *cluster) ready(namespace, selector string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := c.pods(ctx, namespace, selector)
		if err != nil {
			return err
		}
		if len(pods) != want {
			return fmt.Errorf("there are %d pods, want %d", len(pods), want)
		}
		for _, pod := range pods {
			if !isReady(&pod) {
				return fmt.Errorf("%s is not ready: %v", pod.Name, pod.Status)
			}
		}
		return nil
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errNotYet = errors.New("not yet")
