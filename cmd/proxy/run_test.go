package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/logging"
)

// kubeconfig writes a configuration that leads to an upstream.
func kubeconfig(t *testing.T, up *fakeapiserver.Server) string {
	t.Helper()
	return writeFile(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: own}}]
`, up.URL, base64.StdEncoding.EncodeToString(up.Config().CAData)))
}

// secureUpstream is an upstream to which the proxy shows its credentials.
func secureUpstream(t *testing.T) *fakeapiserver.Server {
	t.Helper()
	up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond, TLS: true})
	t.Cleanup(up.Close)
	return up
}

// proxy is the whole program, running.
type proxy struct {
	t                   *testing.T
	plain, tls, metrics string // URLs
	logs                *observer.ObservedLogs
	stop                context.CancelFunc
	done                chan error
}

// running starts the program and waits until it serves.
func running(t *testing.T, up *fakeapiserver.Server, change func(*config.Settings)) *proxy {
	t.Helper()
	p := launched(t, up, change)
	for message, to := range map[string]*string{"serving plain HTTP": &p.plain, "serving HTTPS": &p.tls,
		"serving health and metrics": &p.metrics} {
		eventually(t, message, func() bool {
			found := p.logs.FilterMessage(message).All()
			if len(found) == 0 {
				p.stillRuns()
				return false
			}
			*to = "http://" + found[0].ContextMap()["address"].(string)
			return true
		})
	}
	p.tls = strings.Replace(p.tls, "http:", "https:", 1)
	return p
}

// launched starts the program.
func launched(t *testing.T, up *fakeapiserver.Server, change func(*config.Settings)) *proxy {
	t.Helper()
	o := config.New()
	o.Kubeconfig, o.Resources = kubeconfig(t, up), []string{"configmaps"}
	o.Listen, o.ListenTLS, o.MetricsListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	o.InsecureAllowAll, o.DrainPeriod = true, time.Second
	o.MemoryBudget = 1 << 40 // whatever these tests run in
	if change != nil {
		change(o)
	}
	core, logs := observer.New(zap.DebugLevel)
	ctx, stop := context.WithCancel(context.Background())
	p := &proxy{t: t, logs: logs, stop: stop, done: make(chan error, 1)}
	go func() { p.done <- run(ctx, o, zap.New(core), logging.NewOutput(io.Discard)) }()
	t.Cleanup(func() {
		stop()
		<-p.done
	})
	return p
}

// stillRuns fails the test if the program has ended.
func (p *proxy) stillRuns() {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
		p.t.Fatalf("it ended: %v", err)
	default:
	}
}

// ends waits for the end.
func (p *proxy) ends() {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- nil
		if err != nil {
			p.t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		p.t.Fatal("does not end")
	}
}

// get is the status and the body of one GET.
func (p *proxy) get(url string) (int, string) {
	p.t.Helper()
	//nolint:gosec // a certificate that was just made up
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// ready waits for /readyz.
func (p *proxy) ready() {
	p.t.Helper()
	eventually(p.t, "readiness", func() bool {
		code, _ := p.get(p.metrics + "/readyz")
		return code == http.StatusOK
	})
}

// watching is a watch whose head has come.
func (p *proxy) watching(url, query string) *rawclient.Watcher {
	p.t.Helper()
	w := rawclient.Watch(p.t.Context(), url, "/api/v1/configmaps?watch=1"+query)
	p.t.Cleanup(w.Close)
	if code, _, err := w.Head(p.t.Context()); err != nil || code != http.StatusOK {
		p.t.Fatalf("watch %s%s: %d %v", url, query, code, err)
	}
	return w
}

// The whole program: what is named comes from memory on both listeners, the rest from upstream with
// the client's own credentials, and when its context ends it ends.
func TestRun(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	up.Create(fakeapiserver.Pods, "n", "p")
	p := running(t, up, nil)
	p.ready()
	lists := up.Lists(fakeapiserver.ConfigMaps)
	for _, url := range []string{p.plain, p.tls} {
		code, body := p.get(url + "/api/v1/configmaps?resourceVersion=0")
		if code != http.StatusOK || !strings.Contains(body, `"name":"a"`) {
			t.Errorf("%s: %d %s", url, code, body)
		}
		if code, body = p.get(url + "/api/v1/pods"); code != http.StatusOK || !strings.Contains(body, `"name":"p"`) {
			t.Errorf("%s: %d %s", url, code, body)
		}
		w := p.watching(url, "&allowWatchBookmarks=1")
		events, err := w.Until(t.Context(), func(e rawclient.WatchEvent) bool { return e.End })
		if err != nil || len(events) != 2 {
			t.Errorf("%s: %v %v", url, events, err)
		}
	}
	for _, r := range up.RequestsFor(fakeapiserver.Pods, "list") {
		if r.Header.Get("Authorization") != "" {
			t.Error("the proxy's own credentials were lent to a client")
		}
	}
	for _, r := range up.RequestsFor(fakeapiserver.ConfigMaps, "watch") {
		if r.Header.Get("Authorization") != "Bearer own" {
			t.Errorf("a mirror without credentials: %v", r)
		}
	}
	probes := len(up.RequestsFor(fakeapiserver.ConfigMaps, "list")) - lists
	if all := up.RequestsFor(fakeapiserver.ConfigMaps, "list"); probes > 0 && all[len(all)-1].Query.Get("limit") != "1" {
		t.Errorf("a list of the mirrored went upstream: %v", all)
	}
	_, metrics := p.get(p.metrics + "/metrics")
	for _, want := range []string{
		`spillway_mirror_objects{resource="configmaps",version="v1"} 1`,
		`spillway_cached_requests_total{encoding="json",resource="configmaps",verb="list"} 2`,
		`spillway_watches{encoding="json",resource="configmaps"} 2`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	p.stop()
	p.ends()
	for _, url := range []string{p.plain, p.tls, p.metrics} {
		_, address, _ := strings.Cut(url, "://")
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Errorf("%s still listens", url)
		}
	}
	if p.logs.FilterMessage("stopped").Len() != 1 {
		t.Error("not a word at the end")
	}
}

// On the first signal readiness goes, streams end one by one and cleanly, and requests meanwhile
// are answered; then the process ends.
func TestRunDrains(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	p := running(t, up, func(o *config.Settings) { o.DrainPeriod = 2 * time.Second })
	p.ready()
	query := fmt.Sprintf("&resourceVersion=%d&allowWatchBookmarks=1", up.Revision())
	var all []*rawclient.Watcher
	for range 5 {
		all = append(all, p.watching(p.plain, query), p.watching(p.tls, query))
	}
	last := up.Create(fakeapiserver.ConfigMaps, "n", "b")
	for _, w := range all {
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "readiness to go", func() bool {
		code, body := p.get(p.metrics + "/readyz")
		return code == http.StatusInternalServerError && strings.Contains(body, "[-]shutdown")
	})
	if code, _ := p.get(p.plain + "/api/v1/configmaps?resourceVersion=0"); code != http.StatusOK {
		t.Errorf("a list while draining: %d", code)
	}
	var waiting sync.WaitGroup
	for _, w := range all {
		waiting.Go(func() {
			end, err := w.Wait(t.Context())
			if err != nil || end.Reason != rawclient.Ended {
				t.Errorf("%v %v", end, err)
			}
			if events := w.Events(); len(events) != 2 || events[1].String() != fmt.Sprint("BOOKMARK ", last) {
				t.Errorf("got %v", events)
			}
		})
	}
	waiting.Wait()
	p.ends()
}

// untrusting is a configuration that leads to an upstream whose certificate it does not trust.
func untrusting(t *testing.T, up *fakeapiserver.Server) string {
	t.Helper()
	text, err := os.ReadFile(kubeconfig(t, up))
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "untrusting", regexp.MustCompile(`, certificate-authority-data: [^}]*`).ReplaceAllString(
		string(text), ""))
}

// executed runs a command line to its end.
func executed(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(args, []string{"PATH=/bin"}, &out, &errs, run)
	if out.Len() > 0 {
		t.Errorf("stdout %q", out.String())
	}
	return code, errs.String()
}

// Whatever keeps it from starting is said in one line, with what to do, and leaves nothing behind.
func TestRunRefusesToStart(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	up := secureUpstream(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	refused := fakeapiserver.New(fakeapiserver.Options{TLS: true})
	t.Cleanup(refused.Close)
	unauthorized := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	refused.Handle("/version", unauthorized)
	open := fakeapiserver.New(fakeapiserver.Options{TLS: true}) // to all for its version, and for nothing else
	t.Cleanup(open.Close)
	open.Handle("/api", unauthorized)
	open.Handle("/apis", unauthorized)
	const credentials = `does not accept the credentials of user "test" in kubeconfig /`
	broken := filepath.Join(t.TempDir(), "broken.pem")
	if err := os.WriteFile(broken, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"--listen=127.0.0.1:0", "--metrics-listen=", "--resources=configmaps", "--listen-identity=self"}
	with := func(config string, more ...string) []string {
		return append(append([]string{"--kubeconfig=" + config}, good...), more...)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no kubeconfig":    {with("/nonexistent"), "--kubeconfig=/nonexistent: cannot be read: no such file or directory"},
		"no kubernetes":    {good, "no cluster to talk to: KUBECONFIG=/nonexistent names no file that exists"},
		"a port in use":    {with(kubeconfig(t, up), "--listen="+taken.Addr().String()), "is in use by another process"},
		"not trusted":      {with(untrusting(t, up)), "certificate"},
		"not our upstream": {with(kubeconfig(t, refused)), credentials},
		"credentials that only /version does not need": {with(kubeconfig(t, open)), credentials},
		"a typing mistake": {with(kubeconfig(t, up), "--resources=configmapz"), "did you mean configmaps?"},
		"another context":  {with(kubeconfig(t, up), "--context=prod"), "has no such context; it has test"},
		"no such resource": {with(kubeconfig(t, up), "--resources=nothings", "--strict-resources"),
			`--resources=configmaps,nothings: the API server serves no resource "nothings"`},
		"not a certificate": {with(kubeconfig(t, up), "--listen-tls=127.0.0.1:0", "--insecure-allow-all", "--tls-cert-file="+
			broken, "--tls-private-key-file="+broken), "--tls-cert-file=" + broken + ": cannot be used with " +
			"--tls-private-key-file=" + broken + ": tls: failed to find any PEM data in certificate input"},
	} {
		code, stderr := executed(t, c.args...)
		if code != 1 || !strings.HasPrefix(stderr, "spillway: ") || !strings.Contains(stderr, c.want) ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, stderr %q; want one line with %q", name, code, stderr, c.want)
		}
	}
}
