package stuck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	// answeredWithin is how long any request may take while the proxy has no credentials.
	answeredWithin = 10 * time.Second
	lineWithout    = "no credentials for the API server: only requests that bring their own reach it"
)

// pluginScript prints a token that ends at once. It hangs while there is a file "hang" beside it,
// and fails while there is a file "fail".
const pluginScript = `#!/bin/sh
here=$(dirname "$0")
while [ -e "$here/hang" ]; do sleep 0.1; done
[ -e "$here/fail" ] && exit 3
echo "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"$(cat "$here/token")\",\"expirationTimestamp\":\"2001-01-01T00:00:00Z\"}}"
`

// plugin is a credential plugin, and a kubeconfig that names it.
type plugin struct {
	t               *testing.T
	dir, kubeconfig string
}

func (w *world) newPlugin(t *testing.T) *plugin {
	t.Helper()
	p := &plugin{t: t, dir: t.TempDir()}
	p.kubeconfig = filepath.Join(p.dir, "kubeconfig")
	command := filepath.Join(p.dir, "get-token")
	must(t, os.WriteFile(command, []byte(pluginScript), 0o700)) //nolint:gosec // a program
	must(t, os.WriteFile(filepath.Join(p.dir, "token"), []byte(w.as(self)), 0o600))
	must(t, w.writeKubeconfig(p.kubeconfig, &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: command, Args: []string{"--secret=of-the-plugin"}, APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}))
	return p
}

// writeKubeconfig writes one that leads to the API server as a user.
func (w *world) writeKubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	return w.writeKubeconfigOf(w.cp.URL(), path, user)
}

// writeKubeconfigOf writes one that leads to the API server at a URL.
func (w *world) writeKubeconfigOf(server, path string, user *clientcmdapi.AuthInfo) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"a": {Server: server, CertificateAuthorityData: w.cp.CA()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"a": user},
		Contexts:       map[string]*clientcmdapi.Context{"a": {Cluster: "a", AuthInfo: "a"}},
		CurrentContext: "a",
	}, path)
}

func (p *plugin) set(file string, there bool) {
	p.t.Helper()
	if there {
		must(p.t, os.WriteFile(filepath.Join(p.dir, file), nil, 0o600))
	} else {
		must(p.t, os.Remove(filepath.Join(p.dir, file)))
	}
}

// names reports how many lines name the plugin and say that there are no credentials.
func (p *plugin) namedBy(s *stderr) int {
	n := 0
	for _, e := range s.entries(lineWithout) {
		if name, _ := e["plugin"].(string); filepath.Base(name) == "get-token" {
			n++
		}
	}
	if strings.Contains(s.String(), "of-the-plugin") {
		p.t.Error("the log tells the plugin's arguments")
	}
	return n
}

// While the plugin hangs, what clients bring themselves goes on, the rest has its 503, and
// readiness follows the flag.
func TestPluginHangsLater(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	p := w.newPlugin(t)
	const unready = 30 * time.Second // the least that the flag takes
	s := start(t, binary, "--kubeconfig="+p.kubeconfig, "--readyz-upstream-timeout="+unready.String())
	own := start(t, binary, "--kubeconfig="+p.kubeconfig, "--listen-identity=self")
	w.write("a")
	s.token = w.as(controlplane.Alice)
	process.Awaiting(t, "an answer while all is well", func(context.Context) error {
		if a := s.get(s.url + configMaps + "?resourceVersion=0"); a.code != http.StatusOK {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})

	p.set("hang", true)
	hung := time.Now()
	s.token = w.as(controlplane.Bob) // not reviewed yet
	for _, path := range []string{
		configMaps + "?resourceVersion=0", configMaps, "/api/v1/pods",
		configMaps + "?watch=1&timeoutSeconds=1", configMaps + "?watch=1&resourceVersion=0&timeoutSeconds=1",
	} {
		if a := s.get(s.url + path); a.code != http.StatusOK || a.took > answeredWithin {
			t.Errorf("GET %s: %d after %v %v", path, a.code, a.took, a.err)
		}
	}
	for range 2 {
		if a := own.get(own.url + "/api/v1/pods"); a.code != http.StatusServiceUnavailable || a.took > answeredWithin {
			t.Errorf("a request under the proxy's own identity: %d after %v: %s", a.code, a.took, a.body)
		}
	}
	process.Awaiting(t, "the proxy to be unready", func(context.Context) error {
		a := s.get(s.metrics + "/readyz")
		if a.code == http.StatusInternalServerError && strings.Contains(a.body, "get-token") {
			return nil
		}
		if time.Since(hung) > unready+20*time.Second {
			t.Fatalf("ready for %v: %s", time.Since(hung), a.body)
		}
		return fmt.Errorf("%d", a.code)
	})
	if a := own.get(own.metrics + "/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(a.body, "get-token") {
		t.Errorf("/readyz without the flag: %d %s", a.code, a.body)
	}
	if n, m := p.namedBy(s.log), p.namedBy(own.log); n != 1 || m != 1 {
		t.Errorf("%d and %d lines name the plugin", n, m)
	}
	if err := own.terminates(); err != nil {
		t.Errorf("while the plugin hangs it ended with %v", err)
	}

	p.set("hang", false)
	process.Awaiting(t, "the proxy to be ready again", func(ctx context.Context) error {
		return process.ExpectOK(ctx, s.metrics+"/readyz")
	})
	if err := s.terminates(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A plugin that hangs at the start is waited for; one that fails ends the start with a line.
func TestPluginHangsAtTheStart(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	p := w.newPlugin(t)
	command := func() *exec.Cmd {
		return exec.Command(binary, "--kubeconfig="+p.kubeconfig, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
			"--resources=configmaps", "--drain-period=1s")
	}
	p.set("hang", true)
	s := launch(t, command())
	process.Awaiting(t, "a line that names the plugin", func(context.Context) error {
		if p.namedBy(s.log) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if err := s.terminates(); err != nil {
		t.Errorf("while it waits for the plugin it ended with %v", err)
	}
	s = launch(t, command())
	p.set("hang", false)
	s.metrics = "http://" + s.address("serving health and metrics")
	process.Awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
		return process.ExpectOK(ctx, s.metrics+"/readyz")
	})
	s.child.Kill()

	p.set("fail", true)
	s = launch(t, command())
	s.endsWithALine("get-token")
}

// endsWithALine waits for the end of a start that fails, with one line that names something.
func (s *spillway) endsWithALine(name string) {
	s.t.Helper()
	select {
	case <-s.child.Done:
	case <-time.After(answeredWithin + 5*time.Second):
		s.t.Fatal("it goes on")
	}
	process.Awaiting(s.t, "its last line", func(context.Context) error {
		if text := s.log.String(); s.child.Err == nil || !strings.Contains(text, "spillway: ") ||
			!strings.Contains(text, name) {
			return fmt.Errorf("%v: %s", s.child.Err, text)
		}
		return nil
	})
}
