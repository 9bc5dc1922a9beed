package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/process"
)

const (
	proxies   = "app.kubernetes.io/instance=" + release + ",app.kubernetes.io/component!=test"
	crowdSize = 20
)

// testCluster replaces the pods of a proxy for the whole cluster in every way that an operator has,
// and cuts the power of one of their nodes, under informers that watch through its Service.
func (c *cluster) testCluster(t *testing.T) {
	c.defineServiceMonitors(t)
	const readers = `=[{"kind": "ServiceAccount", "name": "` + account + `", "namespace": "default"}]`
	c.install(t, "cluster", "--set-json=rbac.metricsReaders"+readers, "--set-json=rbac.statusReaders"+readers,
		"--set=monitoring.serviceMonitor.enabled=true", "--set=monitoring.serviceMonitor.interval=1s",
		"--set=networkPolicy.enabled=true", "--set-json=networkPolicy.clients="+friends,
		"--set-json=networkPolicy.metrics="+friends)
	t.Log(c.helm(t, "test", release, "--logs"))
	c.spread(t)
	crowd := c.startCrowd(t, crowdSize)
	crowd.check(t, "the start")
	c.cutWorker(t, crowd)

	c.upgrade(t, "--set-string=podAnnotations.change=1")
	c.settle(t)
	crowd.check(t, "helm upgrade")
	c.helm(t, "rollback", release, "1", "--wait", "--timeout="+patience)
	c.settle(t)
	crowd.check(t, "helm rollback")
	c.evict(t)
	c.settle(t)
	crowd.check(t, "eviction")
	t.Run("pages", c.testPages)
	t.Run("kubectl", c.testKubectl)
	t.Run("Prometheus", c.testPrometheus)
	t.Run("NetworkPolicy", c.testNetworkPolicy)

	// While the whole cluster is off, requests fail. What an informer has to do then is to end with
	// the state.
	must(t, c.PowerOff())
	must(t, c.PowerOn(t.Context()))
	c.settle(t)
	crowd.catchUp(t, "the power cut of all nodes")
	ta := crowd.take()
	t.Logf("power cut of all nodes: %d new watches, %d lists, %d failed requests", ta.watches, ta.lists, len(ta.failures))
	crowd.stop()
}

// testDaemonSet loses and replaces the pods of a proxy on each node.
func (c *cluster) testDaemonSet(t *testing.T) {
	c.install(t, "cluster", "--set=kind=DaemonSet")
	c.settle(t)
	c.spread(t)
	crowd := c.startCrowd(t, crowdSize)
	crowd.check(t, "the start")
	c.cutWorker(t, crowd)
	c.upgrade(t, "--set-string=podAnnotations.change=1")
	c.settle(t)
	crowd.check(t, "helm upgrade of a DaemonSet")
	crowd.stop()
}

func (c *cluster) upgrade(t *testing.T, values ...string) {
	t.Helper()
	c.helm(t, append([]string{"upgrade", release, filepath.Join(c.root, "charts", "spillway"), "--reuse-values", "--wait",
		"--timeout=" + patience}, values...)...)
}

// spread checks that each node has a pod of the proxy.
func (c *cluster) spread(t *testing.T) {
	t.Helper()
	pods, err := c.pods(t.Context(), namespace, proxies)
	must(t, err)
	var on []string
	for _, pod := range pods {
		on = append(on, pod.Spec.NodeName)
	}
	if slices.Sort(on); !slices.Equal(on, c.Nodes()) {
		t.Fatalf("the pods are on %v, want one on each of %v", on, c.Nodes())
	}
}

// cutWorker cuts the power of the node without the control plane, and so one of two pods. Its
// clients receive no word of it. They notice by an unanswered ping, which client-go's informers, of
// any server, answer by a list: the other pod has it in memory.
func (c *cluster) cutWorker(t *testing.T, crowd *informerGroup) {
	t.Helper()
	must(t, c.PowerOffWorker(0))
	crowd.catchUp(t, "a node's power cut")
	ta := crowd.take()
	t.Logf("a node's power cut: %d informers, %d writes so far: %v", len(crowd.informers), crowd.written.Load(), ta)
	if ta.lists == 0 || ta.gaps > ta.lists || len(ta.failures) != 0 {
		t.Errorf("a node's power cut: %v; want a list of each informer of the lost pod, and no failure", ta)
	}
	must(t, c.PowerOnWorker(t.Context(), 0))
	c.settle(t)
	crowd.check(t, "the node's return")
}

// settle awaits that the pods are ready, and that those that were replaced are gone.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	process.Awaiting(t, "the pods", func(ctx context.Context) error {
		all, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: proxies})
		if err != nil {
			return err
		}
		for _, pod := range all.Items {
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("%s is about to end", pod.Name)
			}
		}
		return c.ready(namespace, proxies, 2)(ctx)
	})
}

// evict evicts one pod, and another at once, which the PodDisruptionBudget refuses.
func (c *cluster) evict(t *testing.T) {
	t.Helper()
	pods, err := c.pods(t.Context(), namespace, proxies)
	must(t, err)
	evict := func(name string) error {
		return c.client.PolicyV1().Evictions(namespace).Evict(t.Context(),
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	}
	must(t, evict(pods[0].Name))
	if err := evict(pods[1].Name); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second eviction is answered %v", err)
	}
}

// testPages reads the status page and the metrics of a pod, by port-forward and with a token.
func (c *cluster) testPages(t *testing.T) {
	pods, err := c.pods(t.Context(), namespace, proxies)
	must(t, err)
	cmd := exec.Command(filepath.Join(c.root, "bin", "controlplane", "kubectl"), "--kubeconfig="+c.Kubeconfig(),
		"--namespace="+namespace, "port-forward", "pod/"+pods[0].Name, ":9464")
	out, in := io.Pipe()
	child, err := process.Start(cmd, nil, in)
	must(t, err)
	defer child.Kill()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n') // Forwarding from 127.0.0.1:34567 -> 9464
	must(t, err)
	go func() { _, _ = io.Copy(io.Discard, lines) }() // it ends with kubectl
	defer in.Close()
	address := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0]
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAData: c.authority(t), ServerName: release + "." + namespace + ".svc"}})
	must(t, err)
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"metrics": "spillway_watches", "statusz": "configmaps"} {
		for token, status := range map[string]int{"": http.StatusUnauthorized,
			c.token(t, metav1.NamespaceDefault, account): http.StatusOK} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/"+path, nil)
			must(t, err)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := client.Do(r)
			must(t, err)
			body, err := io.ReadAll(response.Body)
			must(t, err)
			response.Body.Close()
			if response.StatusCode != status || status == http.StatusOK && !strings.Contains(string(body), want) {
				t.Errorf("/%s with %d bytes of token: %s: %.300s", path, len(token), response.Status, body)
			}
		}
	}
}

// testLoadShedding installs what is to stand in front of an overloaded API server.
func (c *cluster) testLoadShedding(t *testing.T) {
	c.install(t, "loadShedding", "--set-json=loadShedding.resources.requests={\"cpu\":\"50m\",\"memory\":\"64Mi\"}")
	t.Log(c.helm(t, "test", release, "--logs"))
	client, err := kubernetes.NewForConfig(c.through(t, c.token(t, metav1.NamespaceDefault, account)))
	must(t, err)
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Error(err)
	}
}
