package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/process"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

// TestNode: pods run on both nodes, again after a power cut, and of the cluster nothing is left.
func TestNode(t *testing.T) {
	Require(t)
	before := traces(t)
	n, err := Start(t.Context(), Options{Workers: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}()
	config := n.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	nodes := n.Nodes()
	for _, node := range nodes {
		_, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "pause", Image: pauseImage}}}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	running := func(node string, restarts int32) {
		t.Helper()
		process.Awaiting(t, "the pod on "+node, func(ctx context.Context) error {
			pod, err := pods.Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, status := range pod.Status.ContainerStatuses {
				if status.Ready && status.RestartCount == restarts {
					return nil
				}
			}
			return fmt.Errorf("it is %v", pod.Status)
		})
	}
	for _, node := range nodes {
		running(node, 0)
	}
	conn, err := n.Dial(t.Context(), "tcp", "kubernetes.default.svc.cluster.local:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := n.Dial(t.Context(), "tcp", "nothing.default.svc.cluster.local:443"); err == nil {
		t.Error("a Service that is not there has an address")
	}

	of := map[string]bool{}
	note := func() {
		for _, m := range n.machines() {
			maps.Copy(of, namespacesOf(t, m.init.Pid()))
		}
	}
	note()
	if during := traces(t); during["cgroups"] == before["cgroups"] {
		t.Error("the comparison does not see the nodes' cgroups")
	}
	if err := n.PowerOffWorker(0); err != nil {
		t.Fatal(err)
	}
	if err := n.PowerOnWorker(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	running(nodes[1], 1)
	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	running(nodes[0], 1)
	running(nodes[1], 2)
	note()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	after := traces(t)
	for kind := range before {
		if before[kind] != after[kind] {
			t.Errorf("%s: before\n%s\nafter\n%s", kind, before[kind], after[kind])
		}
	}
	for _, pid := range members(t, of) {
		t.Errorf("process %s is in a namespace of the node", pid)
	}
	if _, err := os.Stat(n.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is there: %v", err)
	}
}

// traces are what a node could leave on the machine, by kind.
func traces(t *testing.T) map[string]string {
	t.Helper()
	of := map[string]string{}
	command := func(kind, name string, args ...string) {
		text, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, text)
		}
		of[kind] = string(text)
	}
	command("links", "ip", "-oneline", "link")
	command("routes", "ip", "route")
	command("rules", "nft", "list", "ruleset")
	files := func(kind, pattern string, content bool) {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			of[kind] += name + "\n"
			if content {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				of[kind] += string(text)
			}
		}
	}
	files("cgroups", fmt.Sprint(cgroupRoot, "/*/", cgroupPrefix, os.Getpid(), "-*"), false)
	files("cgroups", fmt.Sprint(cgroupRoot, "/", cgroupPrefix, os.Getpid(), "-*"), false)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if !strings.Contains(line, os.TempDir()+"/Test") { // those of tests that run beside this one
			of["mounts"] += line
		}
	}
	files("settings", "/proc/sys/kernel/panic*", true)
	files("settings", "/proc/sys/vm/*oom*", true)
	files("settings", "/proc/sys/vm/overcommit_memory", true)
	files("settings", "/proc/sys/net/ipv4/ip_forward", true)
	return of
}

// namespacesOf are the namespaces of a process that are not ours, as /proc names them.
func namespacesOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	of := map[string]bool{}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		if its == own {
			t.Errorf("the node has no %s namespace of its own", kind)
		}
		of[its] = true
	}
	return of
}

// members are the processes that are in one of these namespaces.
func members(t *testing.T, of map[string]bool) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if namespace, err := os.Readlink(link); err == nil && of[namespace] { // else the process has just ended
			pids = append(pids, strings.Split(link, "/")[2])
		}
	}
	return pids
}
