package outage

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

var (
	slowStarts = flag.Int("slow.starts", 1, "how many proxies start in front of an API server of each speed")
	slowLoad   = flag.Duration("slow.load", 10*time.Second, "how long clients ask for the present state")
)

const (
	// manyStarts are enough for what else is written not to matter, but for chance: one request in
	// fourteen is a watch for a bookmark.
	manyStarts = 20
	chance     = 0.02
	// runs is how long a slow API server runs at a time; then it stands still for a multiple of that.
	runs = 5 * time.Millisecond
	// manyObjects is more than a state may have to be compared (design D7).
	manyObjects    = 600
	presentWatches = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true" +
		"&resourceVersionMatch=NotOlderThan&timeoutSeconds=60"
)

// A slow API server is not taken for one that lacks a capability, and gets no more questions than
// one that is well, nor larger ones: some 1.1 requests for each client, of 600 bytes. One state of
// all objects would be ten times the bytes of all of them. How many questions are needed in one
// start depends on what else is written meanwhile; the sums of many starts are compared.
func TestSlowAPIServer(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	config := cp.Config(controlplane.Admin)
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	must(t, err)
	for i := range manyObjects {
		_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)},
			Data:       map[string]string{"k": strings.Repeat("v", 500)},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	binary := process.BuildProxy(t)
	args := []string{"--kubeconfig=" + cp.Kubeconfig(controlplane.Admin), "--resources=configmaps,endpoints,secrets",
		"--listen-identity=self"}

	var well cost
	for _, share := range []int{1, 10, 50} {
		var all cost
		thaw := slowDown(t, cp, share)
		for range *slowStarts {
			proxy := process.StartProxy(t, binary, args...)
			one := costOf(t, admin, proxy)
			t.Logf("at 1/%d: %+v", share, one)
			one.check(t)
			checkCapabilities(t, cp, proxy)
			proxy.Stop()
			all = all.plus(one)
		}
		thaw()
		if share == 1 {
			well = all
		}
		requests, bytes := all.relativeTo(well)
		t.Logf("at 1/%d: %+v of %d starts, for each client %.2f of the requests and %.2f of the bytes at full speed", share,
			all, *slowStarts, requests, bytes)
		if *slowStarts >= manyStarts && max(requests, bytes) > 1+chance {
			t.Errorf("at 1/%d it gets more than at full speed", share)
		}
	}
}

// slowDown lets the API server run for one part of the time in so many, until thaw is called.
func slowDown(t *testing.T, cp *controlplane.ControlPlane, share int) (thaw func()) {
	t.Helper()
	if share == 1 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var slowing sync.WaitGroup
	slowing.Go(func() {
		for ctx.Err() == nil {
			_ = cp.FreezeAPIServer() // fails once it has ended, with the test
			time.Sleep(time.Duration(share-1) * runs)
			_ = cp.ThawAPIServer()
			time.Sleep(runs)
		}
	})
	thaw = sync.OnceFunc(func() { cancel(); slowing.Wait() })
	t.Cleanup(thaw)
	return thaw
}

// checkCapabilities expects that nothing was found missing: a capability is known to be there, or
// not known.
func checkCapabilities(t *testing.T, cp *controlplane.ControlPlane, proxy *process.Proxy) {
	t.Helper()
	ready := text(t, proxy.Metrics+"/readyz?verbose")
	for line := range strings.Lines(ready) {
		if strings.Contains(line, "]capabilities ") && cp.Newest() && strings.Contains(line, " no") {
			t.Errorf("found out wrongly: %s", line)
		}
		if strings.Contains(line, "falling_back") {
			t.Errorf("a mirror lists: %s", line)
		}
	}
	if n := process.Metric(t, proxy.Metrics, `spillway_mirror_transitions_total{cause="no_initial_events_end"`); n > 0 {
		t.Errorf("%d watch-lists were taken for such without an end", n)
	}
}

// cost is what reaches the API server of one resource, and how long all clients wait together.
type cost struct {
	clients, requests, bytes, passed int
	waited                           time.Duration
}

func (c cost) plus(d cost) cost {
	return cost{c.clients + d.clients, c.requests + d.requests, c.bytes + d.bytes, c.passed + d.passed,
		c.waited + d.waited}
}

// relativeTo is the cost of a client in parts of that of another cost's.
func (c cost) relativeTo(d cost) (requests, bytes float64) {
	clients := float64(d.clients) / float64(c.clients)
	return clients * float64(c.requests) / float64(d.requests), clients * float64(c.bytes) / float64(d.bytes)
}

// check bounds a cost by the number of clients, whatever the speed of the API server.
func (c cost) check(t *testing.T) {
	t.Helper()
	if c.passed > 0 || c.requests > 2*c.clients || c.bytes > 2*600*c.clients {
		t.Errorf("%+v: a watch passed through, or more than 2 requests and 1,200 bytes for each client", c)
	}
}

// costOf is the cost of clients that ask a proxy for the present state, five a second.
func costOf(t *testing.T, admin kubernetes.Interface, proxy *process.Proxy) cost {
	t.Helper()
	const watched = `spillway_passthrough_requests_total{code="200",kind="watch"`
	before, passed := counted(t, admin), process.Metric(t, proxy.Metrics, watched)
	var asking sync.WaitGroup
	var waited atomic.Int64
	clients := 0
	for until := time.Now().Add(*slowLoad); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		clients++
		asking.Go(func() {
			began := time.Now()
			if !untilEnd(t.Context(), proxy.Plain+presentWatches) {
				t.Error("a client was not served")
			}
			waited.Add(int64(time.Since(began)))
		})
	}
	asking.Wait()
	after := counted(t, admin)
	passed = process.Metric(t, proxy.Metrics, watched) - passed
	return cost{clients: clients, passed: passed, requests: after.requests - before.requests,
		bytes: after.bytes - before.bytes, waited: time.Duration(waited.Load())}
}

// untilEnd watches until the initial events end, and reports whether they do.
func untilEnd(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer response.Body.Close() //nolint:errcheck // it was read as far as is wanted
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil || strings.Contains(line, "initial-events-end") {
			return err == nil
		}
	}
}

// counted is what the API server has counted of configmaps.
func counted(t *testing.T, admin kubernetes.Interface) (c cost) {
	t.Helper()
	raw, err := admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if !strings.Contains(line, `resource="configmaps"`) {
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		var value float64
		_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value)
		must(t, err)
		switch name {
		case "apiserver_request_total":
			c.requests += int(value)
		case "apiserver_response_sizes_sum", "apiserver_watch_events_sizes_sum":
			c.bytes += int(value)
		}
	}
	return c
}

func text(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close() //nolint:errcheck // it is read to its end
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return string(body)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
