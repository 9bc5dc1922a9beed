package conformance

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// mirrored is what the proxies keep in memory.
var mirrored = []string{
	"pods", "configmaps", "secrets", "services", "endpoints", "namespaces", "nodes", "deployments.apps",
	"widgets.v1.conformance.example.com",
	"customresourcedefinitions.apiextensions.k8s.io",
}

// world is one cluster and the ways to it.
type world struct {
	cp      *controlplane.ControlPlane
	proxies string                // the kubeconfig of proxies: at the API server, or where its answers are late
	client  *kubernetes.Clientset // straight at the API server
	dynamic dynamic.Interface

	direct *endpoint // the API server
	plain  *endpoint // Spillway over plain HTTP, acting as itself
	secure *endpoint // Spillway over TLS, as the user of the client's token

	direct2, secure2 *endpoint // the same in HTTP/2

	release         exchange.Release
	newest, newest2 *endpoint      // the newest API server, where direct is another
	skew            *exchange.Skew // what may differ from direct then

	marks map[string]string // what ${name} in a target stands for
}

// newWorld starts a cluster with its objects, and the proxies once their history is known to begin
// where the API server's does.
func newWorld(t *testing.T) *world {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Log:           t.Output(),
		APIServerArgs: []string{"--etcd-compaction-interval=0"}, // old states stay, however slow the machine
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	w := &world{cp: cp, marks: map[string]string{
		"future": "100000000",
		"alice":  cp.Config(controlplane.Alice).BearerToken,
		"bob":    cp.Config(controlplane.Bob).BearerToken,
	}}
	config := cp.Config(controlplane.Admin)
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	w.direct = newEndpoint("direct", cp.URL(), config)
	w.makeObjects(t)
	// What came before can be had neither from the API server's watch cache nor from etcd.
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.startNewest(t)
	binary := process.BuildProxy(t)
	w.proxies = filepath.Join(t.TempDir(), "proxies.kubeconfig")
	must(t, controlplane.WriteKubeconfig(w.proxies, late.Before(t, config)))
	plain := startProxy(t, binary, "--kubeconfig="+w.proxies, "--listen-identity=self",
		"--listen-allow-connect",
		"--accept-origins=http://example.com")
	w.plain = newEndpoint("plain", plain.Plain, &rest.Config{Host: plain.Plain})
	w.plain.metrics = plain.Metrics
	secure := startProxy(t, binary, "--kubeconfig="+w.proxies, "--listen=",
		"--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	w.secure = newEndpoint("tls", secure.TLS, &rest.Config{
		Host: secure.TLS, BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	w.secure.metrics = secure.Metrics
	w.direct2, w.secure2 = w.direct.overHTTP2(), w.secure.overHTTP2()
	w.mirroring(t, w.plain)
	w.mirroring(t, w.secure)
	w.changeObjects(t)
	return w
}

// startNewest starts the newest API server beside one that is another.
func (w *world) startNewest(t *testing.T) {
	t.Helper()
	w.release = exchange.Release{Minor: w.cp.Minor(), Gates: w.cp.FeatureGates()}
	if w.cp.Newest() {
		return
	}
	peer, err := w.cp.StartPeerOf(t.Context(), "")
	must(t, err)
	w.newest = newEndpoint("newest", peer.URL(), w.cp.Config(controlplane.Admin))
	w.newest2 = w.newest.overHTTP2()
	w.skew = exchange.NewSkew(w.release, w.newest.Endpoint)
	for _, path := range collections { // its memory of custom resources begins with the first request
		process.Awaiting(t, "the newest API server to serve "+path, func(ctx context.Context) error {
			return w.newest.serves(ctx, path)
		})
	}
}

// serves reports why an API server does not answer from its watch cache.
func (e *endpoint) serves(ctx context.Context, path string) error {
	a, err := e.Do(ctx, request{Target: path + "?resourceVersion=0"})
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("%d: %s", a.Status, a.Body)
	}
	return err
}

// startProxy starts the binary in front of the suite's resources and returns when it is ready.
func startProxy(t *testing.T, binary string, args ...string) *process.Proxy {
	t.Helper()
	return process.StartProxy(t, binary, append([]string{"--resources=" + strings.Join(mirrored, ",")}, args...)...)
}
