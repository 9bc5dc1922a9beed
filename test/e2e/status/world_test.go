package status

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/status"
	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const namespace = "looked-at"

// world is a control plane, a proxy in front of it, and users that watch through it.
type world struct {
	*authcluster.Cluster
	t      *testing.T
	binary string
	proxy  *process.Proxy
	people map[string]authcluster.User
}

// newWorld has users that may read config maps, and an operator that may read the status page and
// nothing else.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	users := map[controlplane.User][]string{"alice": nil, "bob": nil, "carol": nil, "operator": nil}
	w := &world{Cluster: authcluster.Start(t, authcluster.Options{Users: users}), t: t, binary: process.BuildProxy(t),
		people: map[string]authcluster.User{}}
	for name := range users {
		w.people[string(name)] = w.User(name)
		if name != "operator" {
			w.Grant(t, w.User(name), authcluster.Everywhere(authcluster.Rule("get,list,watch", "", "configmaps")))
		}
	}
	w.Grant(t, w.User("operator"), authcluster.Everywhere(authcluster.Paths("get", "/statusz")))
	w.Settle(t)
	w.Namespace(t, namespace)
	w.proxy = process.StartProxy(t, w.binary, append(append(w.ProxyFlags(), "--resources=configmaps"), flags...)...)
	return w
}

// write writes a config map of some size.
func (w *world) write(name, app string, size int) {
	w.t.Helper()
	maps := w.Admin.CoreV1().ConfigMaps(namespace)
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Data:       map[string]string{"padding": strings.Repeat("x", size)},
	}
	if _, err := maps.Update(w.t.Context(), o, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := maps.Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// watches is how many watches a user has.
type watches struct {
	who, agent, protocol, selector string
	n                              int
}

// watch begins watches, and reads what comes. They end with the test.
func (w *world) watch(of watches) {
	w.t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: of.protocol == "HTTP/2",
		MaxIdleConnsPerHost: of.n,
	}
	if of.protocol != "HTTP/2" {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	w.t.Cleanup(func() {
		stop()
		reading.Wait()
		transport.CloseIdleConnections()
	})
	url := w.proxy.TLS + watchPath
	if of.selector != "" {
		url += "&labelSelector=" + of.selector
	}
	for range of.n {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header = w.people[of.who].Header.Clone()
		r.Header.Set("User-Agent", of.agent)
		response, err := transport.RoundTrip(r)
		if err != nil {
			w.t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK {
			w.t.Fatalf("%s: %s", of.who, response.Status)
		}
		reading.Go(func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body) // ends with the test
		})
	}
}

const watchPath = "/api/v1/namespaces/" + namespace + "/configmaps?watch=1&resourceVersion=0&timeoutSeconds=3000"

// stall begins a watch whose client reads nothing but the head of the answer.
func (w *world) stall(who, agent string) {
	w.t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	conn, err := tls.DialWithDialer(&dialer, "tcp", strings.TrimPrefix(w.proxy.TLS, "https://"),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.NetConn().Close() }) // TLS would wait to say goodbye
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nUser-Agent: %s\r\n\r\n", watchPath,
		w.people[who].Header.Get("Authorization"), agent)
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		w.t.Fatalf("%v %v", response, err)
	}
}

// report is what the status page says as JSON.
func (w *world) report(ctx context.Context, query string) (*status.Report, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.proxy.Metrics+"/statusz?format=json&"+query, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s %w", response.Status, body, err)
	}
	var report status.Report
	return &report, json.Unmarshal(body, &report)
}

// awaitReport waits for a report as it is to be.
func (w *world) awaitReport(what, query string, check func(*status.Report) error) *status.Report {
	w.t.Helper()
	var report *status.Report
	process.Awaiting(w.t, what, func(ctx context.Context) (err error) {
		if report, err = w.report(ctx, query); err != nil {
			return err
		}
		return check(report)
	})
	return report
}

// top is what spillway top prints.
func (w *world) top(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), w.binary,
		append([]string{"top", "--once", "--address=" + w.proxy.Metrics}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
