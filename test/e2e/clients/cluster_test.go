package clients

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
)

// cluster is written to directly, as others would.
type cluster struct{ client kubernetes.Interface }

// startCluster starts a control plane in which there is something of everything, and the client
// that writes to it.
func startCluster(t *testing.T) (*controlplane.ControlPlane, *cluster) {
	t.Helper()
	cp, direct := startControlPlane(t)
	w := &cluster{client: direct}
	w.make(t, cp)
	return cp, w
}

// startControlPlane starts a control plane, and a client of its API server.
func startControlPlane(t *testing.T) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	direct, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	return cp, direct
}

// make makes something that every reflector sees, and something that it does not.
func (w *cluster) make(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	ctx, options := t.Context(), metav1.CreateOptions{}
	create := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	create(w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		options))
	for _, name := range []string{node, "n2"} {
		create(cp.MakeNode(ctx, name))
		create(w.client.CoreV1().Pods(namespace).Create(ctx, pod("on-"+name, name), options))
	}
	for name, ip := range map[string]string{"web": "", "headless": corev1.ClusterIPNone} {
		create(w.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
		}, options))
		create(w.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: discoveryv1.AddressTypeIPv4,
		}, options))
	}
	create(w.client.StorageV1().CSIDrivers().Create(
		ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver.example.com"}}, options))
	create(w.client.NodeV1().RuntimeClasses().Create(
		ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "handler"}, options))
	for i := range perObject - 1 { // the last is missing yet
		w.makeVolume(t, i)
	}
}

func (w *cluster) makeVolume(t *testing.T, i int) {
	t.Helper()
	made := metav1.ObjectMeta{Name: object(i)}
	_, err := w.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: made},
		metav1.CreateOptions{})
	must(t, err)
	_, err = w.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: made},
		metav1.CreateOptions{})
	must(t, err)
}

// change changes something of everything: labels come and go, so that objects come into sight and
// leave it; pods come and go; a volume is replaced.
func (w *cluster) change(t *testing.T, round int) {
	t.Helper()
	ctx := t.Context()
	label := func(key string) []byte {
		var value any // null takes the label off
		if round%2 == 0 {
			value = ""
		}
		patch, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value},
				"annotations": map[string]any{"round": fmt.Sprint(round)}}})
		must(t, err)
		return patch
	}
	merge := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	const kind = types.MergePatchType
	options := metav1.PatchOptions{}
	core := w.client.CoreV1()
	merge(core.Services(namespace).Patch(ctx, "web", kind, label("service.kubernetes.io/service-proxy-name"), options))
	merge(w.client.DiscoveryV1().EndpointSlices(namespace).Patch(ctx, "web", kind, label("service.kubernetes.io/headless"),
		options))
	for _, name := range []string{node, "n2"} {
		merge(core.Nodes().Patch(ctx, name, kind, label("odd"), options))
		merge(core.Pods(namespace).Patch(ctx, "on-"+name, kind, label("odd"), options))
		merge(core.Pods(namespace).Create(ctx, pod(fmt.Sprintf("%s-%d", name, round), name), metav1.CreateOptions{}))
	}
	if round > 0 {
		must(t, core.Pods(namespace).Delete(ctx, fmt.Sprintf("%s-%d", node, round-1), metav1.DeleteOptions{}))
	}
	merge(w.client.StorageV1().CSIDrivers().Patch(ctx, "driver.example.com", kind, label("odd"), options))
	merge(w.client.NodeV1().RuntimeClasses().Patch(ctx, "class", kind, label("odd"), options))
	merge(w.client.NetworkingV1().ServiceCIDRs().Patch(ctx, "kubernetes", kind, label("odd"), options))
	w.changeVolumes(t, round, label("odd"))
}

// changeVolumes replaces one volume, and changes the others.
func (w *cluster) changeVolumes(t *testing.T, round int, patch []byte) {
	t.Helper()
	ctx := t.Context()
	secrets, maps := w.client.CoreV1().Secrets(namespace), w.client.CoreV1().ConfigMaps(namespace)
	last := perObject - 1
	if round > 0 {
		must(t, secrets.Delete(ctx, object(last), metav1.DeleteOptions{}))
		must(t, maps.Delete(ctx, object(last), metav1.DeleteOptions{}))
	}
	w.makeVolume(t, last)
	for i := range last {
		_, err := secrets.Patch(ctx, object(i), types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
		_, err = maps.Patch(ctx, object(i), types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
	}
}
