package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/controlplane"
)

// patience bounds waits for what must happen. It decides nothing but how long a failing run takes.
const patience = 2 * time.Minute

// mirrored is what the proxies keep in memory.
var mirrored = []string{
	"pods", "configmaps", "secrets", "services", "endpoints", "namespaces", "nodes", "deployments.apps", "widgets.v1.conformance.example.com",
}

// world is one cluster and the ways to it.
type world struct {
	cp      *controlplane.ControlPlane
	client  *kubernetes.Clientset // straight at the apiserver
	dynamic dynamic.Interface

	direct *endpoint // the apiserver
	plain  *endpoint // Spillway over plain HTTP, acting as itself
	secure *endpoint // Spillway over TLS, as whom the client's token says

	marks map[string]string // what ${name} in a target stands for
}

// newWorld starts a cluster with its objects, and the proxies once their history is known to begin where the apiserver's does.
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
	// What came before can be had neither from the apiserver's watch cache nor from etcd.
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	binary := buildProxy(t)
	plain := startProxy(t, binary, "--kubeconfig="+cp.Kubeconfig(controlplane.Admin), "--plain-identity=self", "--plain-self-connect")
	w.plain = newEndpoint("plain", plain.plain, &rest.Config{Host: plain.plain})
	w.plain.metrics = plain.metrics
	secure := startProxy(t, binary, "--kubeconfig="+cp.Kubeconfig(controlplane.Admin), "--listen=", "--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	w.secure = newEndpoint("tls", secure.tls, &rest.Config{
		Host: secure.tls, BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	w.secure.metrics = secure.metrics
	w.mirroring(t, w.plain)
	w.mirroring(t, w.secure)
	w.changeObjects(t)
	return w
}

// repository is the root of the module that is tested.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func buildProxy(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "spillway")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/proxy")
	build.Dir = repository(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the proxy: %v\n%s", err, out)
	}
	return binary
}

// proxy is a running Spillway: the URLs of its listeners, empty where it has none.
type proxy struct {
	plain, tls, metrics string
}

// startProxy starts the binary and returns when it is ready. It ends with the test; its log is shown if the test fails.
func startProxy(t *testing.T, binary string, args ...string) *proxy {
	t.Helper()
	args = append([]string{
		"--resources=" + strings.Join(mirrored, ","), "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-level=debug",
	}, args...)
	log := newLogFile(t)
	child, err := startChild(exec.Command(binary, args...), nil, log.file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.stop(10 * time.Second)
		if t.Failed() {
			log.show(t)
		}
	})
	p := &proxy{}
	awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
		if child.ended() {
			log.show(t)
			t.Fatal("the proxy ended at once")
		}
		p.readAddresses(log.text())
		if p.metrics == "" {
			return fmt.Errorf("no address in its log yet")
		}
		return expectOK(ctx, p.metrics+"/readyz")
	})
	return p
}

// readAddresses finds out where a proxy serves: it says so in its log.
func (p *proxy) readAddresses(log []byte) {
	for line := range bytes.Lines(log) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal(line, &entry) != nil || entry.Address == "" {
			continue
		}
		switch entry.Msg {
		case "serving plain HTTP":
			p.plain = "http://" + entry.Address
		case "serving HTTPS":
			p.tls = "https://" + entry.Address
		case "serving health and metrics":
			p.metrics = "http://" + entry.Address
		}
	}
}

// awaiting tries until it succeeds.
func awaiting(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logFile keeps what a child wrote.
type logFile struct{ file *os.File }

func newLogFile(t *testing.T) *logFile {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &logFile{file}
}

func (l *logFile) text() []byte {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// show prints the end of the log.
func (l *logFile) show(t *testing.T) {
	text := l.text()
	t.Logf("the end of its log:\n%s", text[max(0, len(text)-4<<10):])
}
