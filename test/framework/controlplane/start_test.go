package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestControllers has a Deployment rolled out and its pods bound to a node made by hand.
func TestControllers(t *testing.T) {
	cp := start(t, Options{ControllerManager: true, Scheduler: true, ServiceAccountAdmission: true})
	if _, err := cp.MakeNode(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Kubectl(t.Context(), "create", "deployment", "web", "--image=example.com/web",
		"--replicas=3"); err != nil {
		t.Fatal(err)
	}
	pods := client(t, cp, Admin).CoreV1().Pods("default")
	eventually(t, "three pods bound to the node", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node-1", LabelSelector: "app=web"})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		return err
	})
}

// TestStartKeepsObjectsOfItsFolder finds the objects of an earlier control plane in its folder.
func TestStartKeepsObjectsOfItsFolder(t *testing.T) {
	dir := t.TempDir()
	cp := start(t, Options{Dir: dir})
	if _, err := client(t, cp, Admin).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("kept"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cp.Stop()
	cp = start(t, Options{Dir: dir})
	if _, err := client(t, cp, Admin).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestStartErrorsNameTheCause(t *testing.T) {
	_, err := Start(t.Context(), Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want the end of the API server's log", err)
	}
	_, err = Start(t.Context(), Options{FeatureGates: map[string]bool{"NoSuchGate": true}})
	if err == nil || !strings.Contains(err.Error(), "unrecognized feature gate: NoSuchGate") {
		t.Errorf("got %v, want what kube-apiserver says of the gate", err)
	}
	_, err = Start(t.Context(), Options{Kubernetes: "1.1"})
	if err == nil || !strings.Contains(err.Error(), "make controlplane KUBERNETES=1.1") {
		t.Errorf("got %v, want a hint at the build of that minor", err)
	}
	t.Setenv(binDirVariable, t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("got %v, want a hint at make controlplane", err)
	}
}

// TestStartNeedsWhatItStarts starts a control plane from a folder without the programs that
// nothing asks for, as `make demo` leaves it on a new machine.
func TestStartNeedsWhatItStarts(t *testing.T) {
	all, err := BinDir()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(filepath.Join(all, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(binDirVariable, bin)
	t.Setenv(versionVariable, "")
	cp := start(t, Options{})
	_, err = cp.StartScheduler(t.Context(), cp.Kubeconfig(Admin))
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler is not in") {
		t.Errorf("a scheduler that is not there: got %v, want a hint at make controlplane", err)
	}
	if _, err = cp.Kubectl(t.Context(), "version"); err == nil || !strings.Contains(err.Error(), "kubectl is not in") {
		t.Errorf("a kubectl that is not there: got %v, want a hint at make controlplane", err)
	}
}

func TestGatesOfTheEnvironment(t *testing.T) {
	got, err := parseGates("A=false,B=true")
	if err != nil || len(got) != 2 || got["A"] || !got["B"] {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"A", "A=", "A=false,", "A=off"} {
		if _, err := parseGates(text); err == nil || !strings.Contains(err.Error(), gatesVariable) {
			t.Errorf("%q: got %v, want the variable's name", text, err)
		}
	}
}

// TestVersionOfKubernetes compares /version with the environment's KUBERNETES, or with
// the kube-apiserver of the build.
func TestVersionOfKubernetes(t *testing.T) {
	cp := start(t, Options{})
	version, err := client(t, cp, Admin).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	want := os.Getenv(versionVariable)
	if want == "" {
		output, err := exec.Command(cp.path, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		want = strings.TrimSpace(strings.TrimPrefix(string(output), "Kubernetes v"))
	}
	if got := strings.TrimPrefix(version.GitVersion, "v"); got != want && !strings.HasPrefix(got, want+".") {
		t.Errorf("kube-apiserver is %s, want %s", got, want)
	}
}
