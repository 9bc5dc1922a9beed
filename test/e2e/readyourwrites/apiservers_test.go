package readyourwrites

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	frozenFor     = 5 * time.Second
	balancedTries = 400
)

// Behind a load balancer stand two API servers, of which the proxy cannot know which answers what:
// one that has had no events lately, one that stands still for seconds. Proofs succeed or fail
// truthfully; no read is ever stale; and an informer that starts gets its state, at the latest when
// both answer again (design D7).
func TestTwoAPIServers(t *testing.T) {
	cp := startControlPlane(t)
	peer, err := cp.StartPeer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := cp.Config(controlplane.Admin)
	config.Host = "https://" + process.NewForwarder(t, cp.URL(), peer.URL()).Address
	kubeconfig := filepath.Join(t.TempDir(), "balancer.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+kubeconfig, "--listen-identity=self",
		"--resources=configmaps")
	atPeer := cp.Config(controlplane.Admin)
	atPeer.Host = peer.URL()

	players := newPlayers(t, cp.Config(controlplane.Admin), &rest.Config{Host: proxy.Plain})
	play := func(what string, tries int) {
		t.Helper()
		seen := players.play(t, tries)
		t.Logf("%s: %s", what, seen)
		for _, err := range seen.staleReads() {
			t.Errorf("%s: %v", what, err)
		}
	}
	play("both answer", balancedTries)
	t.Run("informers start on a quiet resource", func(t *testing.T) { startInformers(t, cp, proxy, players) })
	for _, round := range []struct {
		name    string
		frozen  *controlplane.Process
		healthy *rest.Config
	}{{"the second stands still", peer.Process, cp.Config(controlplane.Admin)},
		{"the first stands still", cp.APIServer(), atPeer}} {
		players.writeTo(t, round.healthy)
		if err := round.frozen.Freeze(); err != nil {
			t.Fatal(err)
		}
		informer := startInformer(t, proxy)
		thawed := make(chan error, 1)
		time.AfterFunc(frozenFor, func() { thawed <- round.frozen.Thaw() })
		play(round.name, balancedTries)
		if err := <-thawed; err != nil {
			t.Fatal(err)
		}
		play(round.name+" no more", balancedTries/4)
		informer.synced(t)
	}
	players.strict(t)
	t.Log(proofs(t, proxy))
}

// informer is one of client-go.
type informer struct {
	cache.SharedIndexInformer
	began time.Time
}

// startInformer starts an informer of ConfigMaps through the proxy. It ends with the test.
func startInformer(t *testing.T, proxy *process.Proxy) *informer {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: proxy.Plain})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	i := &informer{factory.Core().V1().ConfigMaps().Informer(), time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		stop()
		factory.Shutdown()
	})
	return i
}

// synced waits until it has the whole state.
func (i *informer) synced(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("an informer did not start")
	}
	t.Logf("an informer was seen to have started after %v", time.Since(i.began).Round(time.Millisecond))
}

// startInformers starts informers one after another while no ConfigMap is written and everything
// else moves.
func startInformers(t *testing.T, cp *controlplane.ControlPlane, proxy *process.Proxy, p *players) {
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		patch := []byte(`{"metadata":{"annotations":{"at":"` + time.Now().String() + `"}}}`)
		if _, err := client.CoreV1().Namespaces().Patch(t.Context(), namespaceOf(0), "application/merge-patch+json", patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		i := startInformer(t, proxy)
		i.synced(t)
		have := 0
		for _, key := range i.GetStore().ListKeys() {
			if !strings.HasPrefix(key, "kube-system/") { // the API servers' own
				have++
			}
		}
		if want := p.objects(); have != want {
			t.Errorf("an informer shows %d objects, not %d", have, want)
		}
	}
}

// proofs is what the proxy counted of its proofs.
func proofs(t *testing.T, proxy *process.Proxy) string {
	t.Helper()
	resp, err := http.Get(proxy.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range bytes.Lines(text) {
		if s := strings.TrimSpace(string(line)); strings.HasPrefix(s, "spillway_freshness_") ||
			strings.HasPrefix(s, "spillway_consistent_lists") || strings.HasPrefix(s, "spillway_watch_terminations") {
			lines = append(lines, s)
		}
	}
	return strings.Join(lines, "\n")
}
