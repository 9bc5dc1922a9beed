package stuck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	// hostName is the API server's, which its certificate has.
	hostName = "kubernetes.default.svc"
	// resolvedAfter is how long the name server takes while it hangs.
	resolvedAfter = time.Minute
)

// nameServer resolves every name to 127.0.0.1, at once or after resolvedAfter.
type nameServer struct {
	t       *testing.T
	conn    net.PacketConn
	hangs   atomic.Bool
	queries atomic.Int64 // that came while it hangs
}

// newNameServer is one at an address that nothing else has, and at the port that resolv.conf means.
func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for port 53 and a mount namespace")
	}
	conn, err := net.ListenPacket("udp", "127.0.77.53:53")
	must(t, err)
	n := &nameServer{t: t, conn: conn}
	t.Cleanup(func() { conn.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			answer, err := answerName(query[:size])
			var delay time.Duration
			if n.hangs.Load() {
				n.queries.Add(1)
				delay = resolvedAfter
			}
			if err == nil {
				time.AfterFunc(delay, func() { _, _ = conn.WriteTo(answer, from) }) // fails once the test has ended
			}
		}
	}()
	return n
}

// answerName is the answer to a query: an address if it is for one of IPv4, else none.
func answerName(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("no query"))
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	return m.Pack()
}

// program runs a program with a resolv.conf of its own, which names the name server and waits
// longer than that takes.
func (n *nameServer) program(binary string) string {
	n.t.Helper()
	dir := n.t.TempDir()
	config, script := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "spillway")
	address, _, err := net.SplitHostPort(n.conn.LocalAddr().String())
	must(n.t, err)
	must(n.t, os.WriteFile(config, fmt.Appendf(nil, "nameserver %s\nsearch .\noptions timeout:%d attempts:1\n", address,
		int((resolvedAfter+time.Minute)/time.Second)), 0o600))
	text := fmt.Sprintf(`#!/bin/sh
export GODEBUG=netdns=go
exec unshare --mount --propagation=private sh -ec 'mount --bind %s /etc/resolv.conf; exec %s "$@"' spillway "$@"
`, config, binary)
	must(n.t, os.WriteFile(script, []byte(text), 0o700)) //nolint:gosec // a program
	return script
}

// namedKubeconfig leads to the API server by its name.
func (w *world) namedKubeconfig() string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	server, err := url.Parse(w.cp.URL())
	must(w.t, err)
	must(w.t, w.writeKubeconfigOf("https://"+hostName+":"+server.Port(), path,
		&clientcmdapi.AuthInfo{Token: w.as(self)}))
	return path
}

// A name that is not resolved holds up nothing that has a connection. Once connections end, memory
// answers with its age, the rest has its 503, and readiness and the log tell the name.
func TestNameHangsLater(t *testing.T) {
	w := newWorld(t)
	names := newNameServer(t)
	binary, kubeconfig := names.program(process.BuildProxy(t)), w.namedKubeconfig()
	const (
		unready = 30 * time.Second // the least that the flag takes
		cause   = "lookup " + hostName
	)
	s := start(t, binary, "--kubeconfig="+kubeconfig, "--readyz-upstream-timeout="+unready.String())
	s.token = w.as(controlplane.Alice)
	own := start(t, binary, "--kubeconfig="+kubeconfig, "--listen-identity=self")
	events, ownEvents := s.events(), own.events()
	if a := s.get(s.url + "/api/v1/pods"); a.code != http.StatusOK {
		t.Fatalf("while all is well: %+v", a)
	}

	names.hangs.Store(true)
	w.write("b")
	if !arrives(events, "b", late) || !arrives(ownEvents, "b", late) {
		t.Errorf("the event is late by more than %v", late)
	}
	for _, path := range []string{configMaps + "?resourceVersion=0", "/api/v1/pods"} {
		if a := s.get(s.url + path); a.code != http.StatusOK || a.took > late {
			t.Errorf("GET %s over a connection that is there: %d after %v: %s", path, a.code, a.took, a.body)
		}
	}

	w.cp.APIServer().Kill()
	must(t, w.cp.StartAPIServer(t.Context()))
	asked := func(s *spillway, path string) {
		t.Helper()
		a := s.get(s.url + path)
		t.Logf("GET %s: %d after %v", path, a.code, a.took)
		if a.code != http.StatusServiceUnavailable || a.took > answeredWithin {
			t.Errorf("GET %s, which upstream must answer: %d after %v: %s", path, a.code, a.took, a.body)
		}
	}
	s.token = w.as(controlplane.Bob) // not reviewed yet
	for range 2 {
		asked(s, configMaps+"?resourceVersion=0")
		asked(s, "/api/v1/pods")
		asked(own, "/api/v1/pods")
		if a := own.get(own.url + configMaps + "?resourceVersion=0"); a.code != http.StatusOK || a.age < 0 || a.took > late {
			t.Errorf("from memory: %d after %v, age %d: %s", a.code, a.took, a.age, a.body)
		}
	}
	process.Awaiting(t, "the proxy to be unready", func(context.Context) error {
		if a := s.get(s.metrics + "/readyz"); a.code != http.StatusInternalServerError || !strings.Contains(a.body, cause) {
			return fmt.Errorf("%d %s", a.code, a.body)
		}
		return nil
	})
	if a := own.get(own.metrics + "/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(a.body, cause) {
		t.Errorf("/readyz without the flag: %d %s", a.code, a.body)
	}
	for _, one := range []*spillway{s, own} {
		process.Awaiting(t, "a line of the outage", func(context.Context) error {
			lines := one.log.entries("the API server does not answer")
			if len(lines) == 0 {
				return errors.New("none yet")
			}
			if why, _ := lines[0]["error"].(string); len(lines) > 1 || !strings.Contains(why, cause) {
				t.Fatalf("%d lines of it, the first with %q", len(lines), why)
			}
			return nil
		})
	}
	if names.queries.Load() == 0 {
		t.Error("nothing was to be resolved")
	}
	if err := own.terminates(); err != nil {
		t.Errorf("while the name is not resolved it ended with %v", err)
	}

	names.hangs.Store(false)
	process.Awaiting(t, "the proxy to be ready again", func(ctx context.Context) error {
		return process.ExpectOK(ctx, s.metrics+"/readyz")
	})
	w.write("c")
	if !arrives(events, "c", process.Patience) {
		t.Error("the watch has not gone on")
	}
	if err := s.terminates(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A name that is not resolved at the start is waited for, as an API server that is unreachable.
func TestNameHangsAtTheStart(t *testing.T) {
	w := newWorld(t)
	names := newNameServer(t)
	binary, kubeconfig := names.program(process.BuildProxy(t)), w.namedKubeconfig()
	server, err := url.Parse(w.cp.URL())
	must(t, err)
	cause := fmt.Sprintf("API server %s:%s is unknown: i/o timeout", hostName, server.Port())
	names.hangs.Store(true)
	for _, ended := range []bool{true, false} { // while it waits
		plain, metrics := freeAddress(t), freeAddress(t)
		s := launch(t, exec.Command(binary, "--kubeconfig="+kubeconfig, "--listen="+plain, "--metrics-listen="+metrics,
			"--resources=configmaps", "--drain-period=1s"))
		s.url, s.metrics, s.token = "http://"+plain, "http://"+metrics, w.as(controlplane.Alice)
		process.Awaiting(t, "it to serve", func(ctx context.Context) error {
			return process.ExpectOK(ctx, s.metrics+"/livez")
		})
		for _, path := range []string{configMaps + "?resourceVersion=0", "/api/v1/pods"} {
			if a := s.get(s.url + path); a.code != http.StatusServiceUnavailable || a.took > answeredWithin {
				t.Errorf("GET %s: %d after %v: %s", path, a.code, a.took, a.body)
			}
		}
		if a := s.get(s.metrics + "/readyz"); a.code != http.StatusInternalServerError || !strings.Contains(a.body, cause) {
			t.Errorf("/readyz: %d %s", a.code, a.body)
		}
		process.Awaiting(t, "a line that names it", func(context.Context) error {
			lines := s.log.entries("the API server is unreachable: nothing is served until it answers")
			if len(lines) == 0 {
				return errors.New("none yet")
			}
			if why, _ := lines[0]["error"].(string); !strings.Contains(why, cause) {
				t.Fatalf("its reason is %q", why)
			}
			return nil
		})
		if ended {
			if err := s.terminates(); err != nil {
				t.Errorf("while it waits for the name it ended with %v", err)
			}
			continue
		}
		names.hangs.Store(false)
		process.Awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
			return process.ExpectOK(ctx, s.metrics+"/readyz")
		})
		s.child.Kill()
	}
}

// freeAddress is one without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := controlplane.FreePort()
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}
