package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// namespace is where the pods of these tests are, and account whose they are.
const (
	namespace = "kube-system"
	account   = "kube-dns-autoscaler"
)

// cluster is a control plane that admits pods as they are everywhere, with a service account that
// may read config maps.
type cluster struct {
	*controlplane.ControlPlane
	client              *kubernetes.Clientset
	spillway, incluster string // programs
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, controlplane.Options{ServiceAccountAdmission: true})
}

func newClusterWith(t *testing.T, o controlplane.Options) *cluster {
	t.Helper()
	o.Log = t.Output()
	cp, err := controlplane.Start(t.Context(), o)
	must(t, err)
	t.Cleanup(cp.Stop)
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	c := &cluster{ControlPlane: cp, client: client, spillway: process.BuildProxy(t),
		incluster: filepath.Join(t.TempDir(), "incluster")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.incluster, "./incluster")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
	}, metav1.CreateOptions{})
	must(t, err)
	return c
}

// run is spillway's output for an input.
func (c *cluster) run(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.spillway, args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out)
}

// manifests are such as controllers have.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"kube-state-metrics", "metrics-server", "cert-manager"} {
		text, err := os.ReadFile(filepath.Join(process.Repository(t), "internal", "sidecar", "inject", "testdata",
			name+".yaml"))
		must(t, err)
		all[name] = string(text)
	}
	return all
}

func TestInjected(t *testing.T) {
	c := newCluster(t)
	t.Run("manifests", c.takesManifests)
	t.Run("Kubernetes' own manifests", c.takesKubernetesOwn)
	t.Run("an unmodified program", c.runsUnmodifiedProgram)
	t.Run("quota", c.fitsQuota)
	t.Run("webhook", c.asksWebhook)
	t.Run("copies of pods", c.copiesPods)
	t.Run("streams of JSON", c.takesStreams)
	t.Run("kubeconfig", c.takesKubeconfig)
}

// takesKubeconfig: kubectl talks to a spillway by what `spillway kubeconfig` writes, without and
// with credentials.
func (c *cluster) takesKubeconfig(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir)
	proxy := process.StartProxy(t, c.spillway, "--kubeconfig="+c.Kubeconfig(controlplane.Admin), "--resources=configmaps",
		"--listen-identity=self",
		"--listen-tls=127.0.0.1:0", "--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-private-key-file="+
			filepath.Join(dir, "tls.key"))
	for how, flags := range map[string][]string{
		"nobody": {"--server=" + proxy.Plain},
		"somebody": {"--server=" + proxy.TLS, "--ca-file=" + filepath.Join(dir, "tls.crt"), "--kubeconfig=" +
			c.Kubeconfig(controlplane.Alice)},
	} {
		name := filepath.Join(t.TempDir(), "kubeconfig")
		c.run(t, "", append([]string{"kubeconfig", "--output=" + name}, flags...)...)
		out, err := c.Kubectl(t.Context(), "--kubeconfig="+name, "auth", "whoami",
			"--output=jsonpath={.status.userInfo.username}")
		must(t, err)
		if want := map[string]string{"nobody": "admin", "somebody": "alice"}[how]; out != want {
			t.Errorf("as %s it is %q", how, out)
		}
	}
}

// sameObjects checks that an uninjected stream says what the stream said that was injected, but for
// what is empty.
func sameObjects(t *testing.T, name, got, want string) {
	t.Helper()
	if !reflect.DeepEqual(objectsOf(t, got), objectsOf(t, want)) {
		t.Errorf("%s: uninjected it is\n%s", name, got)
	}
}

func objectsOf(t *testing.T, text string) (all []any) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.TrimPrefix(text, "\ufeff")), 4096)
	for {
		var object any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all = append(all, tidy(object))
	}
}

// tidy is a tree without what is empty.
func tidy(tree any) any {
	switch node := tree.(type) {
	case map[string]any:
		for key, value := range node {
			if node[key] = tidy(value); node[key] == nil {
				delete(node, key)
			}
		}
		if len(node) == 0 {
			return nil
		}
	case []any:
		for i := range node {
			node[i] = tidy(node[i])
		}
		if len(node) == 0 {
			return nil
		}
	}
	return tree
}

// takesManifests: kube-apiserver takes what is injected, as it is; and what is uninjected says what
// there was.
func (c *cluster) takesManifests(t *testing.T) {
	_, err := c.Kubectl(t.Context(), "create", "namespace", "cert-manager")
	must(t, err)
	for name, text := range manifests(t) {
		injected := c.run(t, text, "inject", "--image=spillway:1", "--memory-limit=256Mi")
		if !strings.Contains(injected, "spillway.example.com/injected") {
			t.Errorf("%s: nothing is injected", name)
		}
		if _, err := c.KubectlInput(t.Context(), injected, "apply", "--server-side", "--validate=strict",
			"-f=-"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sameObjects(t, name, c.run(t, injected, "uninject"), text)
	}
	// What is in the cluster can be rid of it, too.
	live, err := c.Kubectl(t.Context(), "get", "--namespace="+namespace, "deployment", "metrics-server", "--output=yaml")
	must(t, err)
	_, err = c.KubectlInput(t.Context(), c.run(t, live, "uninject"), "replace", "--validate=strict", "-f=-")
	must(t, err)
	deployment, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), "metrics-server", metav1.GetOptions{})
	must(t, err)
	spec := deployment.Spec.Template.Spec
	if len(spec.InitContainers) != 0 || len(spec.Volumes) != 1 || len(spec.Containers[0].Env) != 0 ||
		len(spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("in the cluster there remain %v", spec)
	}
}

// runsUnmodifiedProgram: one that was not made for Spillway, in an injected pod, lists and watches
// through it with nothing but what the pod gives it: after its token was rotated twice, and after
// the sidecar was killed.
func (c *cluster) runsUnmodifiedProgram(t *testing.T) {
	ports := freePorts(t)
	text := strings.Replace(kubernetesOwn(t)["cluster/addons/dns-horizontal-autoscaler/dns-horizontal-autoscaler.yaml"],
		"    metadata:\n      labels:", fmt.Sprintf(
			"    metadata:\n      annotations:\n        spillway.example.com/port: %q\n"+
				"        spillway.example.com/health-port: %q\n      labels:",
			ports[0], ports[1]), 1)
	injected := c.run(t, text, "inject", "--image=spillway:1")
	_, err := c.KubectlInput(t.Context(), injected, "apply", "--server-side", "--validate=strict", "-f=-")
	must(t, err)
	deployment, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), account, metav1.GetOptions{})
	must(t, err)
	p := c.start(t, c.create(t, podOf(deployment)), ports)
	p.serves("first")
	for _, name := range []string{"second", "third"} {
		p.token = p.rotate()
		p.serves(name)
	}
	p.sidecar.Kill()
	p.startSidecar()
	p.serves("fourth")
	p.program.Stop(10 * time.Second)
}

func podOf(d *appsv1.Deployment) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, Labels: d.Spec.Template.Labels,
			Annotations: d.Spec.Template.Annotations},
		Spec: d.Spec.Template.Spec,
	}
}

// create is the pod that kube-apiserver makes of a pod.
func (c *cluster) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := c.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	return created
}

// running is an injected pod, running.
type running struct {
	*kubelet
	c       *cluster
	ports   [2]string
	token   string // the last
	sidecar *process.Child
	program *process.Child
	app     *process.Log // the program's
}

// start runs the sidecar, and when its startup probe has succeeded the program.
func (c *cluster) start(t *testing.T, pod *corev1.Pod, ports [2]string) *running {
	t.Helper()
	p := &running{kubelet: newKubelet(t, c.ControlPlane, c.client, pod), c: c, ports: ports}
	if len(pod.Spec.InitContainers) != 1 ||
		*pod.Spec.InitContainers[0].RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Fatalf("no native sidecar: %v", pod.Spec.InitContainers)
	}
	p.token = p.rotate()
	p.startSidecar()
	p.program, p.app = p.run(pod.Spec.Containers[0], c.incluster)
	t.Cleanup(func() { p.program.Stop(10 * time.Second) }) // sidecars end after the others, and at once then
	return p
}

func (p *running) startSidecar() {
	p.t.Helper()
	container := p.pod.Spec.InitContainers[0]
	var log *process.Log
	p.sidecar, log = p.run(container, p.c.spillway)
	probe := container.StartupProbe.HTTPGet
	process.Awaiting(p.t, "the sidecar's startup probe", func(ctx context.Context) error {
		if p.sidecar.Ended() {
			log.Show(p.t)
			p.t.Fatal("it ended")
		}
		return process.ExpectOK(ctx, "http://127.0.0.1:"+probe.Port.String()+probe.Path)
	})
}

// serves makes a config map, and waits until the program has received it by its watch, and lists
// from the sidecar's memory with the pod's present token.
func (p *running) serves(name string) {
	p.t.Helper()
	began := time.Now()
	defer func() { p.t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond)) }()
	_, err := p.client.CoreV1().ConfigMaps("default").Create(p.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(p.t, err)
	process.Awaiting(p.t, "the program to see "+name, func(context.Context) error {
		var told, listed bool
		for _, l := range lines(p.app) {
			told = told || l.Added == name
			listed = listed || l.Memory && l.Token == p.token && l.Listed > 0 && l.Host == "https://127.0.0.1:"+p.ports[0]
		}
		if !told || !listed {
			return fmt.Errorf("told of it: %t; listed from memory with the token of now: %t", told, listed)
		}
		return nil
	})
}
