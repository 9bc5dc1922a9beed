package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"spillway/test/demo/stage"
	"spillway/test/framework/controlplane"
)

const (
	namespace     = "spillway-demo"
	requestBudget = 30 * time.Second // for one request to upstream
	goneBudget    = 2 * time.Minute  // for the namespace of a foreign cluster to go away
)

// show is what the demo has started so far. Its methods run on the main goroutine.
type show struct {
	flags
	console *stage.Console
	dir     string // what the demo writes; removed by close

	controlPlane *controlplane.ControlPlane // nil in front of a cluster that is not ours
	upstream     *rest.Config               // the API server, directly
	upstreamFile string                     // its kubeconfig
	direct       *kubernetes.Clientset
	ownNamespace bool // made by us in a cluster that is not ours

	proxy *stage.Proxy
}

func (s *show) upstreamTitle() string {
	if s.kubeconfig != "" {
		return "The cluster of " + s.kubeconfig
	}
	return "A real control plane: etcd and kube-apiserver"
}

func (s *show) startUpstream(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "spillway-demo-"); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	if s.kubeconfig != "" {
		return s.useCluster(ctx)
	}
	s.controlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.dir, "controlplane"), Log: s.console,
	})
	if err != nil {
		return err
	}
	s.upstreamFile = s.controlPlane.Kubeconfig(controlplane.Admin)
	return s.connect(s.controlPlane.Config(controlplane.Admin))
}

// useCluster makes the demo's namespace in a cluster that is not ours.
func (s *show) useCluster(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	s.upstreamFile = s.kubeconfig
	if err := s.connect(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestBudget)
	defer cancel()
	version, err := s.direct.Discovery().WithLegacy().ServerVersion()
	if err != nil {
		return fmt.Errorf("cannot reach %s: %w", config.Host, err)
	}
	s.console.Line("%s, Kubernetes %s", config.Host, version.GitVersion)
	_, err = s.direct.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %[1]s exists already, and it is not ours to delete: kubectl delete namespace %[1]s",
			namespace)
	}
	if err != nil {
		return fmt.Errorf("cannot create namespace %s: %w", namespace, err)
	}
	s.ownNamespace = true
	s.console.Line("made namespace %s, which goes away with the demo", namespace)
	return nil
}

func (s *show) connect(config *rest.Config) (err error) {
	s.upstream = unthrottled(config)
	if s.direct, err = kubernetes.NewForConfig(s.upstream); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	return nil
}

func unthrottled(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// startProxy starts Spillway in front of upstream, and makes a kubeconfig for its clients.
func (s *show) startProxy(ctx context.Context) (err error) {
	started := time.Now()
	if s.proxy, err = stage.StartProxy(ctx, s.console, s.spillway, s.dir, s.upstreamFile, "*"); err != nil {
		return err
	}
	s.console.Line("ready after %.1fs", time.Since(started).Seconds())
	return s.writeKubeconfig()
}

// writeKubeconfig makes a kubeconfig that has nothing but the proxy's address in it, and the demo's
// namespace.
func (s *show) writeKubeconfig() error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: spillway, cluster: {server: %q}}]
contexts: [{name: spillway, context: {cluster: spillway, namespace: %s}}]
current-context: spillway
`, s.proxy.Server, namespace)
	if err := os.WriteFile(s.proxyKubeconfig(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return nil
}

func (s *show) proxyKubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// stay returns when ctx ends, or earlier with the reason why there is nothing left to show.
func (s *show) stay(ctx context.Context) error {
	var etcd, apiserver <-chan struct{} // nil, and so silent, without a control plane of ours
	if s.controlPlane != nil {
		etcd, apiserver = s.controlPlane.Etcd().Done(), s.controlPlane.APIServer().Done()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.proxy.Done:
		return s.proxy.Ended()
	case <-etcd:
		return errors.New("etcd ended by itself; the end of its log:\n" + s.controlPlane.LogTail("etcd"))
	case <-apiserver:
		return errors.New("kube-apiserver ended by itself; the end of its log:\n" + s.controlPlane.LogTail("kube-apiserver"))
	}
}

// close ends what runs and removes what was made, in the opposite order.
func (s *show) close() (err error) {
	s.console.Title("Stopping")
	if s.proxy != nil {
		s.proxy.Stop()
	}
	if s.ownNamespace {
		err = s.deleteNamespace()
	}
	if s.controlPlane != nil {
		s.controlPlane.Stop()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if err == nil {
		s.console.Line("nothing is left behind")
	}
	return err
}

func (s *show) deleteNamespace() error {
	ctx, cancel := context.WithTimeout(context.Background(), goneBudget) // the show's own context has ended
	defer cancel()
	namespaces := s.direct.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete namespace %[1]s, so do it yourself (kubectl delete namespace %[1]s): %[2]w",
			namespace, err)
	}
	s.console.Line("deleting namespace %s", namespace)
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s is being deleted but not gone yet after %s", namespace, goneBudget)
	}
	return nil
}
