package restart

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// upstreamName is a name that the certificate of kube-apiserver is good for, and that has two
// addresses for the proxy alone.
const upstreamName = "kubernetes.default.svc"

// twoAddresses makes a program of the proxy for which upstreamName has two addresses: it runs in a
// mount namespace with hosts of its own.
func twoAddresses(t *testing.T, binary string) string {
	t.Helper()
	dir := t.TempDir()
	hosts, program := filepath.Join(dir, "hosts"), filepath.Join(dir, "spillway-"+upstreamName)
	lines := "127.0.0.1 localhost\n127.0.0.1 " + upstreamName + "\n127.0.0.2 " + upstreamName + "\n"
	if err := os.WriteFile(hosts, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	unshare := "unshare --mount"
	if os.Getuid() != 0 {
		unshare += " --user --map-root-user"
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s sh -c 'mount --bind \"%s\" /etc/hosts && exec \"$@\"' sh ", unshare, hosts)
	if err := os.WriteFile(program, []byte(script+"'"+binary+"' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	try := filepath.Join(dir, "try")
	if err := os.WriteFile(try, []byte(script+"true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), try).CombinedOutput(); err != nil {
		t.Skipf("this machine does not let us have hosts of our own (unshare, mount): %v: %s", err, out)
	}
	return program
}

// passes waits until a read and a write pass through, and returns how long that took.
func passes(t *testing.T, p *process.Proxy, since time.Time) (read, written time.Duration) {
	t.Helper()
	try := func(what, method, target, body string) time.Duration {
		process.Awaiting(t, what, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, method, p.Plain+target, strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode >= http.StatusInternalServerError {
				return fmt.Errorf("%s", response.Status)
			}
			return nil
		})
		return time.Since(since)
	}
	read = try("a read to pass through", http.MethodGet, "/version", "")
	return read, try("a write to pass through", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"default"}}`)
}

// Upstream is one name with two addresses, and a kube-apiserver behind each. What stands in front
// of the first one hangs: connections stay open, and others are accepted, but no byte arrives.
// Later it is well again, and the second one is gone with all its connections.
func TestUpstreamFailsOver(t *testing.T) {
	s := newScene(t)
	program := twoAddresses(t, s.binary)
	peer, err := s.cp.StartPeer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	first := process.NewForwarderAt(t, fmt.Sprintf("127.0.0.1:%d", port), s.cp.URL())
	second := process.NewForwarderAt(t, fmt.Sprintf("127.0.0.2:%d", port), peer.URL())
	config := rest.CopyConfig(s.cp.Config(controlplane.Admin))
	config.Host = fmt.Sprintf("https://%s:%d", upstreamName, port)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	p := process.StartProxy(t, program, "--kubeconfig="+kubeconfig, "--listen-identity=self", "--resources=configmaps",
		"--log-level=info")
	c := newInformerGroup(t, &rest.Config{Host: p.Plain}, *informerCount)
	passes(t, p, time.Now())
	over := func(what string) {
		began := time.Now()
		_, last := c.reach(int(s.churn.pulse.Load())+1, began)
		read, written := passes(t, p, began)
		t.Logf("%s: mirrors are up to date after %v; a read passes through after %v, a write after %v", what,
			last.Round(time.Millisecond),
			read.Round(time.Millisecond), written.Round(time.Millisecond))
	}
	lists := process.Metric(t, p.Metrics, "spillway_upstream_lists_total")
	s.disturb(c, "upstream fails over twice", func() {
		first.Freeze()
		over("the first address hangs")
		first.Down()
		first.Up(s.cp.URL())
		second.Down()
		over("the second address is gone")
	})
	if again := process.Metric(t, p.Metrics, "spillway_upstream_lists_total"); again != lists {
		t.Errorf("the proxy has listed %d times", again-lists)
	}
}
