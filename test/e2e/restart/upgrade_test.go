package restart

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	// upgradeFrom is the minor before the newest.
	upgradeFrom = "1.36"
	// upgradeInformers is how many informers watch during an upgrade.
	upgradeInformers = 200
	// mixed is how long two versions answer at one address.
	mixed = 3 * time.Second
	grace = 20 * time.Second
)

// TestRollingUpgrade replaces the API server of the minor before the newest by the newest, and
// back. Both have one etcd and one address, and answer side by side for a while, each of them some
// of the proxy's connections. No informer lists again, and all hold what is in etcd.
func TestRollingUpgrade(t *testing.T) {
	if !controlplane.Built(upgradeFrom) {
		t.Skipf("run make controlplane KUBERNETES=%s", upgradeFrom)
	}
	cp := startControlPlane(t, controlplane.Options{Kubernetes: upgradeFrom, FeatureGates: map[string]bool{}})
	balancer := process.NewForwarder(t, cp.URL())
	way := rest.CopyConfig(cp.Config(controlplane.Admin))
	way.Host = "https://" + balancer.Address
	s := newSceneOf(t, cp, way)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, way))
	p := process.StartProxy(t, s.binary, "--kubeconfig="+kubeconfig, "--listen-identity=self", "--resources=configmaps",
		"--log-level=info")
	c := newInformerGroup(t, &rest.Config{Host: p.Plain}, max(*informerCount, upgradeInformers))
	// at takes all connections to the servers at these addresses, and waits until all informers see
	// a later pulse.
	at := func(urls ...string) {
		t.Helper()
		balancer.Down()
		balancer.Up(urls...)
		began := time.Now()
		_, last := c.reach(int(s.churn.pulse.Load())+1, began)
		t.Logf("at %v, informers are up to date after %v", urls, last.Round(time.Millisecond))
		time.Sleep(mixed)
	}
	s.disturb(c, "an upgrade to the newest and back", func() {
		peer, err := cp.StartPeerOf(t.Context(), "")
		must(t, err)
		at(cp.URL(), peer.URL())
		at(peer.URL(), cp.URL()) // so that the other one answers the mirror's watch
		cp.StopAPIServer()
		at(peer.URL())
		must(t, cp.StartAPIServer(t.Context()))
		at(peer.URL(), cp.URL())
		at(cp.URL(), peer.URL())
		peer.Stop(grace)
		at(cp.URL())
	})
	t.Logf("upstream received %d LISTs", process.Metric(t, p.Metrics, "spillway_upstream_lists_total"))
}
