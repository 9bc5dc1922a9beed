package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// patience bounds waits for things that must happen; it decides nothing but how long a failing test
// takes.
const patience = 2 * time.Minute

// TestControlPlane walks one control plane through its abilities, because each start costs seconds.
func TestControlPlane(t *testing.T) {
	cp := start(t, Options{WatchCacheSizes: map[string]int{"secrets": 0}})
	for _, ability := range []struct {
		name string
		test func(*testing.T, *ControlPlane)
	}{
		{"users may do what they should", testUsers},
		{"objects survive a restart of the API server", testRestart},
		{"a frozen etcd leaves reads from the cache", testFreezeEtcd},
		{"etcd stops and starts again", testStopEtcd},
		{"compaction ends old exact lists and watches", testCompact},
		{"a node made by hand is ready", testMakeNode},
		{"kubectl runs, streams and reports errors", testKubectl},
		{"a process tells what it uses", testUsage},
		{"a second API server shows the same", testPeer},
		{"etcd is thawed while an API server waits for it", testThawWhileStarting},
		{"a copy of etcd is put back", testRestore},
	} {
		t.Run(ability.name, func(t *testing.T) { ability.test(t, cp) })
	}
}

func testUsers(t *testing.T, cp *ControlPlane) {
	for _, c := range []struct {
		user       User
		namespace  string
		list, make bool
	}{
		{Admin, "default", true, true},
		{Admin, "kube-system", true, true},
		{Alice, "default", true, false},
		{Alice, "kube-system", false, false},
		{Bob, "default", false, false},
		{Carol, "default", true, false},
		{Carol, "kube-system", true, false},
		{Anonymous, "default", false, false},
	} {
		t.Run(fmt.Sprintf("%s in %s", c.user, c.namespace), func(t *testing.T) {
			configMaps := client(t, cp, c.user).CoreV1().ConfigMaps(c.namespace)
			_, err := configMaps.List(t.Context(), metav1.ListOptions{})
			expectAllowed(t, "list", err, c.list)
			_, err = configMaps.Create(t.Context(), configMap("of-"+strings.ReplaceAll(string(c.user), ":", "-")),
				metav1.CreateOptions{})
			expectAllowed(t, "create", err, c.make)
		})
	}
}

func expectAllowed(t *testing.T, what string, err error, allowed bool) {
	t.Helper()
	if allowed && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if !allowed && !apierrors.IsForbidden(err) {
		t.Errorf("%s: got error %v, want Forbidden", what, err)
	}
}

func testRestart(t *testing.T, cp *ControlPlane) {
	configMaps := client(t, cp, Admin).CoreV1().ConfigMaps("default")
	made, err := configMaps.Create(t.Context(), configMap("survivor"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := cp.APIServer()
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if running(before) || cp.APIServer().Pid() == before.Pid() {
		t.Error("the API server is the same process as before")
	}
	found, err := configMaps.Get(t.Context(), "survivor", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if found.UID != made.UID || found.ResourceVersion != made.ResourceVersion {
		t.Errorf("found %s at %s, made %s at %s", found.UID, found.ResourceVersion, made.UID, made.ResourceVersion)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Errorf("starting what runs: %v", err)
	}
}

func testFreezeEtcd(t *testing.T, cp *ControlPlane) {
	configMaps := client(t, cp, Admin).CoreV1().ConfigMaps("default")
	if _, err := configMaps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Fatal(err)
	}
	if err := cp.FreezeEtcd(); err != nil {
		t.Fatal(err)
	}
	if err := cp.FreezeEtcd(); err != nil {
		t.Errorf("freezing twice: %v", err)
	}
	if _, err := configMaps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("list at resourceVersion 0 without etcd: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := configMaps.Create(ctx, configMap("unwritable"), metav1.CreateOptions{}); err == nil {
		t.Error("a write went through without etcd")
	}
	if err := cp.ThawEtcd(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a write after the thaw", func(ctx context.Context) error {
		_, err := configMaps.Create(ctx, configMap("thawed"), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // it went through, but its answer came too late
		}
		return err
	})
}

func testStopEtcd(t *testing.T, cp *ControlPlane) {
	cp.StopEtcd()
	if running(cp.Etcd()) {
		t.Fatal("etcd runs on")
	}
	if err := cp.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	configMaps := client(t, cp, Admin).CoreV1().ConfigMaps("default")
	eventually(t, "a read of what was written before", func(ctx context.Context) error {
		_, err := configMaps.Get(ctx, "survivor", metav1.GetOptions{})
		return err
	})
}

func testCompact(t *testing.T, cp *ControlPlane) {
	core := client(t, cp, Admin).CoreV1()
	old, err := core.ConfigMaps("default").Create(t.Context(), configMap("old"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// the latest revision outlives a compaction, the one before does not
	for _, name := range []string{"later", "latest"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := core.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	exactly := metav1.ListOptions{ResourceVersion: old.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := core.ConfigMaps("default").List(t.Context(), exactly); err != nil {
		t.Fatalf("exact list before the compaction: %v", err)
	}
	revision, err := cp.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now, err := cp.Revision(t.Context()); err != nil || now <= revision {
		t.Errorf("revision %d after a compaction at %d (%v)", now, revision, err)
	}
	if _, err := core.Secrets("default").List(t.Context(), exactly); !apierrors.IsResourceExpired(err) {
		t.Errorf("exact list without a watch cache: got %v, want 410", err)
	}
	w, err := core.Secrets("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("watch without a watch cache: got %v, want 410", event)
	}
	eventually(t, "410 for the exact list from the watch cache", func(ctx context.Context) error {
		if _, err := core.ConfigMaps("default").List(ctx, exactly); !apierrors.IsResourceExpired(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

func testMakeNode(t *testing.T, cp *ControlPlane) {
	node, err := cp.MakeNode(t.Context(), "made-by-hand")
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 0 || len(node.Status.Conditions) != 1 ||
		node.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("taints %v, conditions %v", node.Spec.Taints, node.Status.Conditions)
	}
}

func testKubectl(t *testing.T, cp *ControlPlane) {
	out, err := cp.KubectlInput(t.Context(), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`,
		"apply", "-f", "-")
	if err != nil || !strings.Contains(out, "configmap/applied created") {
		t.Errorf("apply printed %q, %v", out, err)
	}
	if _, err := cp.Kubectl(t.Context(), "get", "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("get nonsense: %v", err)
	}
	if _, err := cp.Kubectl(t.Context(), "get", "configmaps", "--kubeconfig="+cp.Kubeconfig(Bob)); err == nil ||
		!strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("get as bob: %v", err)
	}
	read, write := io.Pipe()
	p, err := cp.StartKubectl(Streams{Out: write}, "get", "configmap", "applied", "--watch", "--output=name")
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("configmap/applied\n"))
	if _, err := io.ReadFull(read, line); err != nil || string(line) != "configmap/applied\n" {
		t.Errorf("watch printed %q, %v", line, err)
	}
	p.Stop(patience)
	if err := p.Signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kubectl after Stop: %v", err)
	}
}

func testUsage(t *testing.T, cp *ControlPlane) {
	cpu, err := cp.APIServer().CPU()
	if err != nil || cpu <= 0 {
		t.Errorf("CPU %v, %v", cpu, err)
	}
	rss, err := cp.APIServer().RSS()
	if err != nil || rss < 50<<20 {
		t.Errorf("RSS %d, %v", rss, err)
	}
}

// start fails the test when the control plane does not come up, above all when it has not been
// built.
func start(t *testing.T, options Options) *ControlPlane {
	t.Helper()
	options.Log = t.Output()
	cp, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	return cp
}

func client(t *testing.T, cp *ControlPlane, user User) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config(user))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// eventually waits for try to succeed and reports its last error when it does not.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			last = try(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

func testPeer(t *testing.T, cp *ControlPlane) {
	peer, err := cp.StartPeer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Kill()
	if _, err := client(t, cp, Admin).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("of-one"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := cp.Config(Admin)
	config.Host = peer.URL()
	other, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.CoreV1().ConfigMaps("default").Get(t.Context(), "of-one", metav1.GetOptions{}); err != nil {
		t.Errorf("what was written to one API server is not there at the other: %v", err)
	}
}
