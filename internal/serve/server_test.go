package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/fanout"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/source"
	"spillway/internal/source/sourcetest"
	"spillway/internal/watch"
)

// fill stores some config maps and widgets, in more than one namespace.
func fill(up *fakeapiserver.Server) {
	for i := range 7 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%d", i), fakeapiserver.WithLabel("parity", fmt.Sprint(i%2)))
		up.Create(fakeapiserver.Widgets, "n", fmt.Sprintf("w%d", i), fakeapiserver.WithField("spec.color", "red"))
	}
	up.Create(fakeapiserver.ConfigMaps, "n-x", "c")
	up.Create(fakeapiserver.ConfigMaps, "m", "big", fakeapiserver.WithPadding(100_000))
	up.Progress()
}

// Whatever the proxy answers itself is what upstream answers, byte for byte (D1).
func TestAnswersAsUpstream(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	fill(up)
	r := rigOf(t, up, rigOptions{})
	rv := fmt.Sprint(up.Revision())
	const maps, widgets = "/api/v1/configmaps", "/apis/example.com/v1/widgets"
	before := answeredHere(r)
	targets := []string{
		maps + "?resourceVersion=0", maps + "?resourceVersion=0&limit=2", widgets + "?resourceVersion=0",
		maps + "?resourceVersion=" + rv, maps + "?limit=3&resourceVersion=" + rv, widgets + "?limit=3&resourceVersion=" + rv,
		maps + "?limit=3&resourceVersionMatch=NotOlderThan&resourceVersion=" + rv,
		maps + "?resourceVersionMatch=Exact&resourceVersion=" + rv,
		maps + "?resourceVersion=0&labelSelector=parity%3D1", maps + "?limit=2&labelSelector=parity%3D1&resourceVersion=" +
			rv,
		maps + "?resourceVersion=0&fieldSelector=metadata.name%3Dc1", widgets +
			"?resourceVersion=0&fieldSelector=spec.color%3Dblue",
		"/api/v1/namespaces/n/configmaps?resourceVersion=0", "/api/v1/namespaces/none/configmaps?resourceVersion=0",
		"/api/v1/namespaces/n/configmaps?limit=1&resourceVersion=" + rv,
		"/apis/example.com/v1/namespaces/none/widgets?resourceVersion=0",
		"/api/v1/namespaces/n/configmaps/c1?resourceVersion=0",
		"/apis/example.com/v1/namespaces/n/widgets/w1?resourceVersion=" + rv,
	}
	for _, target := range targets {
		got, want := r.list(target), direct(t, up, target)
		if got.Status != want.Status || !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%s:\ngot  %d %.300s\nwant %d %.300s", target, got.Status, got.Body, want.Status, want.Body)
		}
		if n := got.Header.Get("Content-Length"); n != fmt.Sprint(len(got.Body)) {
			t.Errorf("%s: Content-Length %q, body %d", target, n, len(got.Body))
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Cache-Control": "no-cache, private",
			"Server": ""} {
			if got.Header.Get(name) != value {
				t.Errorf("%s: %s is %q", target, name, got.Header.Get(name))
			}
		}
	}
	if n := answeredHere(r) - before; n != float64(len(targets)) {
		t.Errorf("%v of %d requests were answered from memory", n, len(targets))
	}
}

// What the cache cannot answer is upstream's word, and reaches it as it was.
func TestPassesThrough(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	fill(up)
	r := rigOf(t, up, rigOptions{})
	const maps = "/api/v1/configmaps"
	for _, target := range []string{
		maps, maps + "?limit=2", maps + "?resourceVersion=0&fieldSelector=spec.x%3D1", maps + "?resourceVersion=1&limit=1",
		"/api/v1/namespaces/n/configmaps/c1", "/api/v1/namespaces/n/configmaps/none", "/api/v1/pods", "/api/v1/nothing",
		"/version",
		maps + "?resourceVersion=100000000&timeout=10ms",
	} {
		got, want := r.list(target), direct(t, up, target)
		if got.Status != want.Status || !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%s:\ngot  %d %.300s\nwant %d %.300s", target, got.Status, got.Body, want.Status, want.Body)
		}
	}
	if n := answeredHere(r); n != 0 {
		t.Errorf("%v requests were answered from memory", n)
	}
}

// Whatever the proxy refuses itself is refused as upstream would (W-27, W-31, W-68, W-82, W-96,
// W-171).
func TestRefusesAsUpstream(t *testing.T) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	fill(up)
	r := rigOf(t, up, rigOptions{})
	const maps, widgets = "/api/v1/configmaps", "/apis/example.com/v1/widgets"
	for target, code := range map[string]int{
		maps + "?limit=abc": 400, maps + "?resourceVersion=abc": 400, maps + "?continue=xyz": 400, maps +
			"?labelSelector=!": 400,
		maps + "?resourceVersion=5&resourceVersionMatch=Foo": 422, widgets + "?sendInitialEvents=1": 422, maps +
			"?watch=1&resourceVersion=abc": 500,
		"/api/v1/namespaces/n/configmaps/none?resourceVersion=0":           404,
		"/apis/example.com/v1/namespaces/n/widgets/none?resourceVersion=0": 404,
		"/api/v1/namespaces/n/configmaps/c1?resourceVersion=abc":           500,
	} {
		got, want := r.list(target), direct(t, up, target)
		if got.Status != want.Status || got.Status != code || !bytes.Equal(got.Body, want.Body) {
			t.Errorf("%s:\ngot  %d %.300s\nwant %d %.300s", target, got.Status, got.Body, want.Status, want.Body)
		}
	}
	if n := r.sum("spillway_rejected_requests_total"); n != 10 {
		t.Errorf("%v of 10 requests were refused here", n)
	}
}

func direct(t *testing.T, up *fakeapiserver.Server, target string) *rawclient.ListResult {
	t.Helper()
	l, err := rawclient.List(deadline(t), up.URL, target)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// answeredHere is how many requests were answered from memory.
func answeredHere(r *rig) float64 { return r.sum("spillway_cached_requests_total") }

// A list that is far larger than a piece arrives whole, on plain connections and through TLS.
func TestALargeListArrivesWhole(t *testing.T) {
	t.Parallel()
	up := fakeapiserver.New(fakeapiserver.Options{})
	for i := range 15 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%02d", i), fakeapiserver.WithPadding(100_000))
	}
	r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}})
	want := direct(t, up, "/api/v1/configmaps?resourceVersion=0")
	for _, url := range []string{r.url, r.tlsURL} {
		got, err := rawclient.List(deadline(t), url, "/api/v1/configmaps?resourceVersion=0")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Body, want.Body) || len(got.Body) < 1<<20 {
			t.Errorf("%s: %d bytes, want %d", url, len(got.Body), len(want.Body))
		}
	}
}

// The end of a watch ends the body, not the connection: the next request travels on the same one
// (W-2).
func TestConnectionAfterAWatch(t *testing.T) { eachWay(t, testConnectionAfterAWatch) }

func testConnectionAfterAWatch(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	for _, url := range []string{r.url, r.tlsURL} {
		transport := &http.Transport{MaxConnsPerHost: 1,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a throw-away certificate
		t.Cleanup(transport.CloseIdleConnections)
		fresh := 0
		ctx := httptrace.WithClientTrace(deadline(t), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			if !c.Reused {
				fresh++
			}
		}})
		for _, target := range []string{
			"/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1",
			"/api/v1/configmaps?resourceVersion=0",
			"/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=1",
			"/api/v1/configmaps",
			"/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1",
		} {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatalf("%s%s: %v", url, target, err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != 200 || len(body) == 0 {
				t.Errorf("%s: %d %q %v", target, response.StatusCode, body, err)
			}
		}
		if fresh != 1 {
			t.Errorf("%s: %d connections for five requests", url, fresh)
		}
	}
	r.ended(configMaps, watch.EndTimeout, 6)
}

// A request that was sent behind a watch, before its end, is not lost so that its client waits for
// ever, and what follows of it is not taken for a request: the connection says that it ends with
// the watch, and does.
func TestPipelinedBehindAWatch(t *testing.T) { eachWay(t, testPipelinedBehindAWatch) }

func testPipelinedBehindAWatch(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	const watch = "GET " + mapsPath + "?watch=1&resourceVersion=1&timeoutSeconds=1 HTTP/1.1\r\nHost: x\r\n\r\n"
	const next, smuggled = "GET " + mapsPath + "?resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	upload := fmt.Sprintf("PUT %s/n HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", mapsPath, len(smuggled))
	for _, base := range []string{r.url, r.tlsURL} {
		for _, c := range []struct{ name, first, later string }{
			{"nothing", watch, ""},
			{"all of a request", watch + next, ""},
			{"half a request", watch + next[:20], next[20:]},
			{"a request without its body", watch + upload, smuggled},
			{"a byte", watch + "G", ""},
		} {
			conn := r.dial(base)
			fmt.Fprint(conn, c.first)
			answers := bufio.NewReader(conn)
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			fmt.Fprint(conn, c.later)
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%s: the watch: %s, %v", c.name, answer.Status, err)
			}
			if behind := len(c.first) > len(watch); answer.Close != behind {
				t.Errorf("%s: the watch says that the connection ends: %v", c.name, answer.Close)
			} else if !behind {
				fmt.Fprint(conn, next)
				if answer, err := http.ReadResponse(answers, nil); err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("%s: the next request: %v, %v", c.name, answer, err)
				}
				continue
			}
			var late net.Error
			if text, err := io.ReadAll(answers); len(text) > 0 || errors.As(err, &late) && late.Timeout() {
				t.Errorf("%s: behind the watch came %q, %v", c.name, text, err)
			}
		}
	}
	for _, one := range r.up.Requests() {
		if strings.Contains(one.Path, "smuggled") {
			t.Errorf("upstream got %+v", one)
		}
	}
}

// dial connects to a listener of the proxy for as long as a test may wait.
func (r *rig) dial(base string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", base[strings.LastIndex(base, "/")+1:])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if base == r.tlsURL {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a throw-away certificate
	}
	return c
}

// TestAWatchHasTheBytesOfTheAPIServer is what stands on the wire, chunk by chunk (W-107).
func TestAWatchHasTheBytesOfTheAPIServer(t *testing.T) { eachWay(t, testWatchBytes) }

func testWatchBytes(t *testing.T, goroutines bool) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r := rigOf(t, up, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /api/v1/configmaps?watch=1&resourceVersion=1 HTTP/1.1\r\nHost: x\r\nAudit-ID: "+
		"mine\r\nConnection: close\r\n\r\n")
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(text), "\r\n\r\n")
	event := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}` + "\n"
	if want := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(event), event); body != want {
		t.Errorf("got  %q\nwant %q", body, want)
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.Header.Get("Audit-Id") != "mine" || !response.Close || strings.Contains(head, "Server:") {
		t.Errorf("head %q", head)
	}
}

// Old protocols and upgrades are upstream's to answer.
func TestOldProtocolsAndUpgradesPassThrough(t *testing.T) {
	r := newRig(t, rigOptions{})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /api/v1/configmaps?resourceVersion=0 HTTP/1.0\r\nHost: x\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || answeredHere(r) != 0 {
		t.Errorf("%s, %v answered from memory", response.Status, answeredHere(r))
	}
}

// bare is a server that only passes on what its catalog does not have, without a rig's mirrors.
func bare(t *testing.T, catalog source.Catalog) *rig {
	t.Helper()
	up := fakeapiserver.New(fakeapiserver.Options{})
	r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{}})
	r.server.planner.Catalog, r.server.opts.Catalog = catalog, catalog
	return r
}

// While the first state is on its way a request is held, then refused with a 429: never answered
// with an empty list (W-72, D14).
func TestARequestBeforeTheFirstStateIsHeldThenRefused(t *testing.T) {
	t.Parallel()
	resource := cache.New(configMaps, sourcetest.KeepAll, nil)
	hub := fanout.NewHub(resource)
	r := bare(t, sourcetest.Resources{configMaps.GVR: {Hub: hub,
		Fresh: freshness.New(resource, sourcetest.Unreachable{})}})
	list := r.list("/api/v1/configmaps?resourceVersion=0")
	if list.Status != http.StatusTooManyRequests || list.Failure == nil ||
		list.Failure.Message != "storage is (re)initializing" || list.Failure.Details == nil {
		t.Errorf("%d %v %s", list.Status, list.Header, list.Body)
	}
	after := strconv.Itoa(int(list.Failure.Details.RetryAfterSeconds))
	if !spread(after) || list.Header.Get("Retry-After") != after {
		t.Errorf("Retry-After is %s s, %v", after, list.Header)
	}
	if n := r.metric("spillway_not_ready_rejected_requests_total", "resource=configmaps"); n != 1 {
		t.Errorf("counted %v", n)
	}
}

// A mirror that is given up while its first state is awaited has nothing to wait for: upstream
// answers at once.
func TestGivenUpWhileAwaited(t *testing.T) {
	resource := cache.New(configMaps, sourcetest.KeepAll, nil)
	resource.Close()
	hub := fanout.NewHub(resource)
	r := bare(t, sourcetest.Resources{configMaps.GVR: {Hub: hub,
		Fresh: freshness.New(resource, sourcetest.Unreachable{})}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	if list := r.list("/api/v1/configmaps?resourceVersion=0"); list.Status != 200 || len(list.Items) != 1 {
		t.Errorf("%d %s", list.Status, list.Body)
	}
	w := r.watch("/api/v1/configmaps?watch=1&resourceVersion=0")
	expect(t, w, "ADDED n/a 2")
}

// breakingListener accepts connections to which no watch can be delivered while broken is true: a
// delivery that writes to one of them panics.
type breakingListener struct {
	net.Listener
	broken *atomic.Bool
}

func (l breakingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.broken.Load() {
		c = breakingConn{c}
	}
	return c, err
}

type breakingConn struct{ net.Conn }

func (c breakingConn) Write(b []byte) (int, error) {
	if bytes.Contains(debug.Stack(), []byte("watch.(*Stream).deliver(")) {
		panic("boom")
	}
	return c.Conn.Write(b)
}

// A panic costs one request, or one stream, and is counted.
func TestAPanicCostsOneRequestAndIsCounted(t *testing.T) {
	var broken atomic.Bool
	r := newRig(t, rigOptions{broken: &broken})
	broken.Store(true)
	w := rawclient.Watch(deadline(t), r.url, "/api/v1/configmaps?watch=1&resourceVersion=0")
	t.Cleanup(w.Close)
	over(t, w, rawclient.Unreachable)
	r.ended(configMaps, watch.EndAborted, 1)
	broken.Store(false)
	r.server.planner.Catalog = nil
	list := r.list("/api/v1/configmaps?resourceVersion=0")
	if list.Status != http.StatusInternalServerError || list.Failure == nil {
		t.Errorf("%d %s", list.Status, list.Body)
	}
	if n := r.metric("spillway_panics_total"); n != 2 {
		t.Errorf("counted %v panics", n)
	}
	if r.logs.FilterMessageSnippet("BUG").Len() != 2 {
		t.Errorf("logged %v", r.logs.All())
	}
}

// Close ends what is under way and leaves nothing running, goleak says; it says nothing about an
// error.
func TestCloseLeavesNothingRunning(t *testing.T) { eachWay(t, testClose) }

func testClose(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	var open []*rawclient.Watcher
	for range 5 {
		open = append(open, r.watch("/api/v1/configmaps?watch=1&resourceVersion=0"))
	}
	passing := r.watch("/api/v1/pods?watch=1&resourceVersion=0")
	for _, w := range open {
		expect(t, w, "ADDED n/a 2")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = r.server.Close(ctx) // an error only says that something had to be ended
	for _, w := range append(open, passing) {
		over(t, w, rawclient.Cut)
	}
	if n := r.metric("spillway_watches", "resource=configmaps"); n != 0 {
		t.Errorf("%v streams", n)
	}
	if _, err := rawclient.List(deadline(t), r.url, "/version"); err == nil {
		t.Error("still listening")
	}
}

// A listener that is served after Close, or just before it, is closed.
func TestServeAndClose(t *testing.T) {
	for _, first := range []string{"close", "serve", "both"} {
		t.Run(first, func(t *testing.T) {
			for range 20 {
				s := New(Options{Catalog: sourcetest.Resources{},
					Forwarder: passthrough.NewForwarder(passthrough.ForwarderOptions{}), Metrics: NewMetrics(nil), Log: zap.NewNop()})
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				served := make(chan error, 1)
				stop := func() {
					if err := s.Close(deadline(t)); err != nil {
						t.Error(err)
					}
				}
				if first == "close" {
					stop()
				}
				go func() { served <- s.Serve(ln, ListenerConfig{}) }()
				if first == "serve" {
					c, err := net.Dial("tcp", ln.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					_ = c.Close()
				}
				stop()
				if err := await(t, served, "the end of Serve"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
