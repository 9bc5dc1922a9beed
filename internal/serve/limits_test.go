package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"spillway/internal/apistatus"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/watch"
)

// impatient is a Limiter without queues.
func impatient(l flowcontrol.Limits) *flowcontrol.Limiter {
	return flowcontrol.NewLimiter(l, flowcontrol.Queue{}, nil)
}

// soon reports whether a Retry-After is one that the first refused requests receive.
func soon(retryAfter string) bool { return slices.Contains([]string{"1", "2"}, retryAfter) }

// spread tells times that are not the same for all.
func spread(retryAfter string) bool {
	after, err := strconv.Atoi(retryAfter)
	return err == nil && after >= 1 && after <= apistatus.RetrySpread
}

// occupy takes as much of a limit as one flow may have, for a flow that no request of a test has,
// until release is called.
func occupy(t *testing.T, l *flowcontrol.Limiter, limit string, width int64) (release func()) {
	t.Helper()
	return occupyAs(t, l, "stranger", limit, width)
}

func occupyAs(t *testing.T, l *flowcontrol.Limiter, user, limit string, width int64) (release func()) {
	t.Helper()
	flow, ok := flowcontrol.UserFlow(user), false
	var pass flowcontrol.Permit
	var refusal *flowcontrol.Refusal
	switch limit {
	case flowcontrol.LimitListBytes:
		pass, ok = l.TryList(flow, width)
	case flowcontrol.LimitWatches:
		pass, refusal = l.AdmitLasting(flow)
		ok = refusal == nil
	case flowcontrol.LimitPassThrough:
		pass, refusal = l.AdmitPassThrough(nil, flow, true)
		ok = refusal == nil
	}
	if !ok {
		t.Fatalf("there is no room in %s for %s", limit, user)
	}
	return pass.Release
}

// occupyAll takes all of a limit, half of which is all that one flow may have.
func occupyAll(t *testing.T, l *flowcontrol.Limiter, limit string, width int64) (release func()) {
	t.Helper()
	one := occupy(t, l, limit, width)
	two := occupyAs(t, l, "another stranger", limit, width)
	return func() {
		one()
		two()
	}
}

// waiting waits until so many wait for a limit.
func waiting(t *testing.T, l *flowcontrol.Limiter, limit string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d to wait", want), func() bool { return l.GateStats(limit).Waiting == want })
}

// returned waits until nothing is held of any limit, and nothing waits.
func returned(t *testing.T, l *flowcontrol.Limiter) {
	t.Helper()
	for _, name := range []string{flowcontrol.LimitWatches, flowcontrol.LimitListBytes, flowcontrol.LimitPassThrough,
		flowcontrol.LimitSelectorTerms} {
		load := l.GateStats(name)
		until := time.Now().Add(patience)
		for ; load.Held != 0 || load.Waiting != 0 || load.Flows != 0; load = l.GateStats(name) {
			if time.Now().After(until) {
				t.Fatalf("%s: %+v is left", name, load)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// flowControlled is what kube-apiserver's flow control answers (W-180): its filter does just this,
// below those that set the other two.
func flowControlled(t *testing.T) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	w.Header().Set("Audit-Id", "an-id")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	return w.Result()
}

// refusal checks that an answer is flow control's, but for how long it says to stay away.
func refusal(t *testing.T, what string, got *http.Response, gotBody string) {
	t.Helper()
	want := flowControlled(t)
	wantBody, _ := io.ReadAll(want.Body)
	if got.StatusCode != want.StatusCode || gotBody != string(wantBody) {
		t.Errorf("%s: %d %q, want %d %q", what, got.StatusCode, apistatus.Clip(gotBody), want.StatusCode, wantBody)
	}
	if after := got.Header.Get("Retry-After"); !soon(after) {
		t.Errorf("%s: Retry-After %q", what, after)
	}
	header := got.Header.Clone()
	header.Set("Retry-After", "1")
	for _, framing := range []string{"Date", "Content-Length"} {
		if header.Get(framing) == "" {
			t.Errorf("%s: no %s", what, framing)
		}
		header.Del(framing)
	}
	if len(header["Audit-Id"]) != 1 {
		t.Errorf("%s: Audit-Id %q", what, header["Audit-Id"])
	}
	header.Set("Audit-Id", "an-id")
	sameHeaders(t, header, want.Header)
}

// oneConnection is a client that fails rather than open a second connection.
func oneConnection(t *testing.T, r *rig, http2 bool) (*http.Client, string) {
	t.Helper()
	if http2 {
		return overHTTP2(t, 1<<20), r.tlsURL
	}
	tr := &http.Transport{DisableCompression: true}
	dialed := false
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialed {
			return nil, errors.New("a second connection")
		}
		dialed = true
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, r.url
}

func eachProtocol(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("http1", func(t *testing.T) { f(t, false) })
	t.Run("http2", func(t *testing.T) { f(t, true) })
}

// A watch too many is refused in flow control's words, from memory or passed through; its
// connection serves the next request, and when a watch has ended there is room for another.
func TestAWatchBeyondTheLimitIsRefused(t *testing.T) { eachProtocol(t, testLimitWatches) }

func testLimitWatches(t *testing.T, http2 bool) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, clients: flowcontrol.Limits{Watches: 2}})
	first, second := r.watch(mapsPath+"?watch=1&resourceVersion=1"), r.watch("/api/v1/pods?watch=1")
	client, url := oneConnection(t, r, http2)
	for _, target := range []string{mapsPath + "?watch=1&resourceVersion=1", mapsPath + "?watch=1", "/api/v1/pods?watch=1",
		"/api/v1/namespaces/n/pods/p/log?follow=1"} {
		response, body := get(t, client, "GET", url+target)
		refusal(t, target, response, body)
	}
	if response, _ := get(t, client, "GET", url+mapsPath+"?resourceVersion=0"); response.StatusCode != http.StatusOK {
		t.Errorf("the next request on the connection: %d", response.StatusCode)
	}
	if n := r.metric("spillway_flowcontrol_rejected_requests_total", "limit=watches", "reason=concurrency-limit"); n != 4 {
		t.Errorf("counted %v refusals", n)
	}
	if n := r.metric("spillway_flowcontrol_in_use", "limit=watches"); n != 2 {
		t.Errorf("counted %v watches", n)
	}
	first.Close()
	second.Close()
	returned(t, r.limiter)
	r.watch(mapsPath + "?watch=1&resourceVersion=1").Close()
	returned(t, r.limiter)
}

// A user with as many watches as one user may have takes none from other users, whether the watches
// are served from memory or pass through.
func TestLimitWatchesPerUser(t *testing.T) {
	t.Parallel()
	r := rigOf(t, fakeapiserver.New(fakeapiserver.Options{}),
		rigOptions{access: true, clients: flowcontrol.Limits{WatchesPerUser: 2}})
	r.people()
	r.reviews.Allow(func(authorizationv1.SubjectAccessReviewSpec) bool { return true })
	open := func(token, target string) int {
		w := rawclient.Watch(deadline(t), r.url, target, bearing(token))
		t.Cleanup(w.Close)
		code, _, err := w.Head(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	fromMemory, passing := inN+"?watch=1&resourceVersion=1", "/api/v1/namespaces/n/pods?watch=1"
	for i, c := range []struct {
		token, target string
		code          int
	}{
		{"alice", fromMemory, 200}, {"alice", passing, 200}, {"alice", fromMemory, 429}, {"alice", passing, 429},
		{"bob", fromMemory, 200}, {"bob", passing, 200}, {"bob", passing, 429},
		{"mallory", passing, 200}, {"oscar", passing, 200}, // unknown users count by their address
		{"peggy", passing, 429},
	} {
		if code := open(c.token, c.target); code != c.code {
			t.Errorf("%d: %s, %s: %d, want %d", i, c.token, c.target, code, c.code)
		}
	}
	if n := r.metric("spillway_flowcontrol_rejected_requests_total", "limit=watches", "reason=user-limit"); n != 4 {
		t.Errorf("counted %v refusals", n)
	}
}

// full is an upstream with n config maps of 100 kB.
func full(n int) *fakeapiserver.Server {
	up := fakeapiserver.New(fakeapiserver.Options{})
	for i := range n {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(100_000))
	}
	return up
}

// largeTargets are what waits for its share of bytes, and smallTargets what does not.
var (
	largeTargets = []string{
		mapsPath + "?resourceVersion=0", mapsPath + "?resourceVersion=0&labelSelector=!x", mapsPath +
			"?watch=1&resourceVersion=0&timeoutSeconds=1",
		"/api/v1/namespaces/n/configmaps?watch=1&sendInitialEvents=true&resourceVersion=0&resourceVersionMatch=NotOlderThan" +
			"&allowWatchBookmarks=true&timeoutSeconds=1&fieldSelector=metadata.name!%3D1",
	}
	smallTargets = []string{
		mapsPath + "?resourceVersion=0&labelSelector=x", mapsPath +
			"?watch=1&resourceVersion=0&labelSelector=x&timeoutSeconds=1",
		"/api/v1/namespaces/n/configmaps/1?resourceVersion=0", mapsPath + "?watch=1&resourceVersion=20&timeoutSeconds=1",
	}
)

// While there is no room for large answers, requests for them wait until there is, and requests for
// small ones do not wait.
func TestLimitListBytes(t *testing.T) { eachProtocol(t, testLimitListBytes) }

func testLimitListBytes(t *testing.T, http2 bool) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{ListBytes: 2 << 20}})
	r.mirrored(configMaps)
	release := occupy(t, r.limiter, flowcontrol.LimitListBytes, 1<<20) // a share is half
	second := occupyAs(t, r.limiter, "another", flowcontrol.LimitListBytes, 1<<20)
	client, url := oneConnection(t, r, http2)
	for _, target := range smallTargets {
		if response, body := get(t, client, "GET", url+target); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", target, response.StatusCode, body)
		}
	}
	var all sync.WaitGroup
	for _, target := range largeTargets {
		all.Go(func() {
			one, url := oneConnection(t, r, http2)
			response, err := one.Get(url + target)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if n, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || n < 900_000 {
				t.Errorf("%s: %d, %d bytes, %v", target, response.StatusCode, n, err)
			}
		})
	}
	waiting(t, r.limiter, flowcontrol.LimitListBytes, len(largeTargets))
	if n := r.metric("spillway_flowcontrol_current_inqueue_requests", "limit=list_bytes"); n != float64(
		len(largeTargets)) {
		t.Errorf("%v are said to wait", n)
	}
	release()
	second()
	all.Wait()
	returned(t, r.limiter)
}

// A request that finds no place in the queue is refused in flow control's words.
func TestLimitListBytesRefused(t *testing.T) { eachProtocol(t, testLimitListBytesRefused) }

func testLimitListBytesRefused(t *testing.T, http2 bool) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{ListBytes: 1 << 20}, impatient: true})
	r.mirrored(configMaps)
	release := occupyAll(t, r.limiter, flowcontrol.LimitListBytes, 1<<20)
	client, url := oneConnection(t, r, http2)
	for _, target := range largeTargets {
		response, body := get(t, client, "GET", url+target)
		refusal(t, target, response, body)
	}
	release()
	for _, target := range largeTargets {
		if response, _ := get(t, client, "GET", url+target); response.StatusCode != http.StatusOK {
			t.Errorf("%s, on the same connection: %d", target, response.StatusCode)
		}
	}
	returned(t, r.limiter)
}

// A watch holds bytes for its initial events, and none afterwards.
func TestLimitListBytesOfAWatch(t *testing.T) { eachWay(t, testLimitListBytesOfAWatch) }

func testLimitListBytesOfAWatch(t *testing.T, goroutines bool) {
	t.Parallel()
	r := rigOf(t, full(40), rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{Watches: 5, ListBytes: 100 << 20}})
	r.mirrored(configMaps)
	answer := stalling(t, r.url+mapsPath+"?watch=1&resourceVersion=0", 256<<10)
	eventually(t, "the bytes of a stalled client",
		func() bool { return r.metric("spillway_flowcontrol_in_use", "limit=list_bytes") > 3_900_000 })
	go func() { _, _ = io.Copy(io.Discard, answer) }() // until it is closed
	eventually(t, "the end of initial events",
		func() bool { return r.metric("spillway_flowcontrol_in_use", "limit=list_bytes") == 0 })
	if n := r.metric("spillway_flowcontrol_in_use", "limit=watches"); n != 1 {
		t.Errorf("%v watches", n)
	}
	_ = answer.Close()
	returned(t, r.limiter)
}

// A request that its client cancels leaves the queue at once.
func TestLimitDeparture(t *testing.T) { eachProtocol(t, testLimitDeparture) }

func testLimitDeparture(t *testing.T, http2 bool) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{ListBytes: 1 << 20, PassThrough: 1}})
	r.mirrored(configMaps)
	defer occupy(t, r.limiter, flowcontrol.LimitPassThrough, 1)()
	defer occupyAll(t, r.limiter, flowcontrol.LimitListBytes, 1<<20)()
	for target, limit := range map[string]string{
		mapsPath + "?resourceVersion=0": flowcontrol.LimitListBytes, mapsPath +
			"?watch=1&resourceVersion=0": flowcontrol.LimitListBytes,
		"/api/v1/pods": flowcontrol.LimitPassThrough, "/api/v1/pods?watch=1": flowcontrol.LimitPassThrough,
	} {
		ctx, cancel := context.WithCancel(deadline(t))
		client, url := oneConnection(t, r, http2)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			done <- err
		}()
		waiting(t, r.limiter, limit, 1)
		cancel()
		if err := await(t, done, "the client"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", target, err)
		}
		waiting(t, r.limiter, limit, 0)
	}
	eventually(t, "4 departures to be counted", func() bool { // after the line is left
		return r.metric("spillway_flowcontrol_rejected_requests_total", "reason=cancelled") == 4
	})
}

// A request that waits when the proxy shuts down is refused with a 503, and does not delay the
// shutdown.
func TestAShutdownRefusesWaitingRequestsWith503(t *testing.T) {
	t.Parallel()
	r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{ListBytes: 1 << 20, PassThrough: 1}})
	r.mirrored(configMaps)
	defer occupy(t, r.limiter, flowcontrol.LimitPassThrough, 1)()
	defer occupyAll(t, r.limiter, flowcontrol.LimitListBytes, 1<<20)()
	var all sync.WaitGroup
	for _, target := range []string{mapsPath + "?resourceVersion=0", mapsPath + "?watch=1&resourceVersion=0",
		"/api/v1/pods"} {
		all.Go(func() {
			client, url := oneConnection(t, r, false)
			response, body := get(t, client, "GET", url+target)
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
				t.Errorf("%s: %d %s", target, response.StatusCode, body)
			}
		})
	}
	waiting(t, r.limiter, flowcontrol.LimitListBytes, 2)
	waiting(t, r.limiter, flowcontrol.LimitPassThrough, 1)
	r.close()
	all.Wait()
}

// dialFrom sends requests from one of this machine's addresses.
func dialFrom(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	tr := &http.Transport{DisableCompression: true, DialContext: dialer.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// While hundreds of requests of one client wait, those of others are admitted before all but one of
// them.
func TestLimitPassThroughIsFair(t *testing.T) {
	const elephants = 250 // no more than may wait
	limiter := flowcontrol.NewLimiter(flowcontrol.Limits{PassThrough: 2}, flowcontrol.DefaultQueue, nil)
	arrived, release := make(chan string, elephants+10), make(chan struct{})
	fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		<-release
	}), frontOptions{identity: passthrough.IdentitySelf, // of unproven senders one could have a place at a time
		mutate: func(o *passthrough.ForwarderOptions) { o.Limiter = limiter }})
	var all sync.WaitGroup
	ask := func(from, path string) {
		client := dialFrom(t, from)
		all.Go(func() {
			if response, body := get(t, client, "GET", fr.url()+path); response.StatusCode != http.StatusOK {
				t.Errorf("%s: %d %s", path, response.StatusCode, body)
			}
		})
	}
	for range elephants + 2 {
		ask("127.0.0.1", "/elephant")
	}
	waiting(t, limiter, flowcontrol.LimitPassThrough, elephants)
	for range 2 {
		await(t, arrived, "an elephant")
	}
	for mouse := range 3 {
		ask(fmt.Sprint("127.0.0.", 2+mouse), fmt.Sprint("/mouse", mouse))
		waiting(t, limiter, flowcontrol.LimitPassThrough, elephants+mouse+1)
	}
	var let []string
	for range 4 {
		release <- struct{}{}
		let = append(let, await(t, arrived, "the next"))
	}
	// the elephants' turn may have come once: when the first of them are gone, they hold no more than
	// a mouse
	for mouse := range 3 {
		if !slices.Contains(let, fmt.Sprint("/mouse", mouse)) {
			t.Errorf("mouse %d is not among the first who were let in: %v", mouse, let)
		}
	}
	close(release)
	all.Wait()
	returned(t, limiter)
}

// A watch that passes through has a seat until its answer begins, an upgrade and a log have none,
// and each counts among what lasts.
func TestLimitPassThroughLasting(t *testing.T) {
	headed, goOn := make(chan struct{}, 10), make(chan struct{})
	every(t, func(t *testing.T, o frontOptions) {
		limiter := flowcontrol.NewLimiter(flowcontrol.Limits{Watches: 10, PassThrough: 10}, flowcontrol.DefaultQueue, nil)
		o.mutate = func(o *passthrough.ForwarderOptions) { o.Limiter = limiter }
		fr := newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			headed <- struct{}{}
			<-goOn
			_ = http.NewResponseController(w).Flush()
			<-goOn
		}), o)
		for _, c := range []struct {
			target         string
			before, during int64 // seats before the head, and after it
		}{{"/api/v1/pods?watch=1", 1, 0}, {"/api/v1/namespaces/n/pods/p/log?follow=1", 0, 0},
			{"/api/v1/namespaces/n/services/s/proxy/x", 0, 0}} {
			done := make(chan struct{})
			client := fr.client(t)
			go func() {
				defer close(done)
				get(t, client, "GET", fr.url()+c.target)
			}()
			await(t, headed, "the request")
			if seats, lasting := limiter.GateStats(flowcontrol.LimitPassThrough).Held,
				limiter.GateStats(flowcontrol.LimitWatches).Held; seats != c.before || lasting != 1 {
				t.Errorf("%s, before its answer: %d seats, %d lasting", c.target, seats, lasting)
			}
			goOn <- struct{}{}
			eventually(t, "seats of a watch",
				func() bool { return limiter.GateStats(flowcontrol.LimitPassThrough).Held == c.during })
			if lasting := limiter.GateStats(flowcontrol.LimitWatches).Held; lasting != 1 {
				t.Errorf("%s, during its answer: %d lasting", c.target, lasting)
			}
			goOn <- struct{}{}
			await(t, done, "the end")
			returned(t, limiter)
		}
	})
}

// A client above its rate is refused with a 429, whatever it requests.
func TestLimitPassThroughRate(t *testing.T) {
	every(t, func(t *testing.T, o frontOptions) {
		o.mutate = func(o *passthrough.ForwarderOptions) {
			limits := flowcontrol.Limits{PassThroughQPS: 0.001, PassThroughBurst: 2}
			o.Limiter = flowcontrol.NewLimiter(limits, flowcontrol.DefaultQueue, nil)
		}
		fr := newFront(t, answers(), o)
		client := fr.client(t)
		codes := map[int]int{}
		for range 10 {
			response, _ := get(t, client, "GET", fr.url()+"/x")
			codes[response.StatusCode]++ // 404 is what this upstream says
			if after := response.Header.Get("Retry-After"); response.StatusCode == 429 && after != "32" {
				t.Errorf("Retry-After %q", after)
			}
		}
		if codes[404] != 2 || codes[429] != 8 {
			t.Errorf("answers: %v, want 2 let in of 10", codes)
		}
		if response, _ := get(t, client, "GET", fr.url()+"/x?watch=1"); response.StatusCode != 429 {
			t.Errorf("a watch: %d", response.StatusCode)
		}
	})
}

// Probes are answered while everything is at its limit.
func TestProbesAreAnsweredAtEveryLimit(t *testing.T) { eachProtocol(t, testLimitProbes) }

func testLimitProbes(t *testing.T, http2 bool) {
	t.Parallel()
	r := newRig(t, rigOptions{clients: flowcontrol.Limits{Watches: 1, ListBytes: 1 << 20, PassThrough: 1,
		PassThroughQPS: 0.001, PassThroughBurst: 1}, impatient: true})
	defer occupy(t, r.limiter, flowcontrol.LimitWatches, 1)()
	defer occupyAll(t, r.limiter, flowcontrol.LimitListBytes, 1<<20)()
	defer occupy(t, r.limiter, flowcontrol.LimitPassThrough, 1)()
	client, url := oneConnection(t, r, http2)
	for range 3 {
		for _, path := range []string{"/livez", "/readyz", "/healthz?verbose"} {
			if response, body := get(t, client, "GET", url+path); response.StatusCode == http.StatusTooManyRequests {
				t.Errorf("%s: %s", path, body)
			}
		}
	}
	for range 2 {
		response, body := get(t, client, "GET", url+"/version")
		if response.StatusCode != 429 || body != apistatus.TooManyRequestsText {
			t.Errorf("/version: %d %s", response.StatusCode, body)
		}
	}
}

// An informer that meets a limit retries by itself and gets its state.
func TestLimitInformer(t *testing.T) {
	t.Parallel()
	for name, occupied := range map[string]func(*testing.T, *flowcontrol.Limiter) (release func()){
		"watches": func(t *testing.T, l *flowcontrol.Limiter) func() { return occupy(t, l, flowcontrol.LimitWatches, 1) },
		"bytes": func(t *testing.T, l *flowcontrol.Limiter) func() {
			return occupyAll(t, l, flowcontrol.LimitListBytes, 1<<20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rigOf(t, full(10), rigOptions{mirrors: []*object.Resource{configMaps},
				clients: flowcontrol.Limits{Watches: 1, ListBytes: 1 << 20}, impatient: true})
			r.mirrored(configMaps)
			release := occupied(t, r.limiter)
			in := r.informer("application/json")
			eventually(t, "a refusal", func() bool { return r.metric("spillway_flowcontrol_rejected_requests_total") > 0 })
			release()
			in.holds(t, r.up)
		})
	}
}

// Whatever becomes of a request, it gives back what it held.
func TestLimitsAreGivenBack(t *testing.T) { eachWay(t, testLimitsAreGivenBack) }

func testLimitsAreGivenBack(t *testing.T, goroutines bool) {
	t.Parallel()
	var broken atomic.Bool
	r := rigOf(t, full(40), rigOptions{
		goroutines: goroutines, stall: time.Second / 2, mirrors: []*object.Resource{configMaps}, broken: &broken,
		clients: flowcontrol.Limits{Watches: 1000, WatchesPerUser: 900, ListBytes: 1 << 30, PassThrough: 1000,
			PassThroughPerUser: 900, PassThroughQPS: 1e6, PassThroughBurst: 1e6},
	})
	r.mirrored(configMaps)
	list, state, watch := mapsPath+"?resourceVersion=0", mapsPath+"?watch=1&resourceVersion=0", mapsPath+
		"?watch=1&resourceVersion=1"
	zipped := http.Header{"Accept-Encoding": {"gzip"}}
	// Ends of their own: a list in several forms, refusals, timeouts, what passes through and fails
	// there.
	for _, http2 := range []bool{false, true} {
		client, url := oneConnection(t, r, http2)
		for _, target := range []string{
			list, list + "&limit=5", list + "&pretty=1", list + "&limit=x", state + "&timeoutSeconds=1", watch +
				"&timeoutSeconds=1", watch + "&timeoutSeconds=x",
			mapsPath + "?watch=1&resourceVersion=99999&timeoutSeconds=1", mapsPath + "?resourceVersion=99999", mapsPath,
			"/api/v1/pods", "/api/v1/nothing", "/version",
		} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				request, err := http.NewRequest(method, url+target, nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header = zipped
				response, err := client.Do(request)
				if err != nil {
					t.Fatalf("%s %s: %v", method, target, err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
	}
	returned(t, r.limiter)
	// Clients that leave, at once and later, and those that do not read.
	for _, secure := range []bool{false, true} {
		for _, target := range []string{list, state, watch, "/api/v1/pods?watch=1", mapsPath} {
			for _, head := range []int{0, 100} {
				c := r.dialTiny(secure)
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
				_, _ = io.ReadFull(c, make([]byte, head))
				_ = c.Close()
			}
		}
		for _, target := range []string{list, state} { // evicted
			c := r.dialTiny(secure)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
		}
	}
	returned(t, r.limiter)
	for _, target := range []string{state, watch, "/api/v1/pods?watch=1"} { // HTTP/2 streams that are cancelled
		client := overHTTP2(t, 64<<10)
		w := r.watch2(client, target)
		w.Close()
	}
	returned(t, r.limiter)
	// Bugs.
	broken.Store(true)
	for _, url := range []string{r.url, r.tlsURL} {
		w := rawclient.Watch(deadline(t), url, state)
		t.Cleanup(w.Close)
		_, _ = w.Wait(deadline(t))
	}
	broken.Store(false)
	returned(t, r.limiter)
	// The proxy's own end: drained and refused while it does, then stopped at once.
	open := []*rawclient.Watcher{r.watch(state), r.watch(watch), r.watch("/api/v1/pods?watch=1")}
	ctx, cancel := context.WithCancel(deadline(t))
	go r.server.Drain(ctx, time.Millisecond)
	over(t, open[1], rawclient.Ended)
	refused := r.list(watch)
	if refused.Status != http.StatusServiceUnavailable {
		t.Errorf("while it drains: %d", refused.Status)
	}
	cancel()
	stopping, cancelStopping := context.WithCancel(context.Background())
	cancelStopping()
	_ = r.server.Close(stopping) // an error only says that something had to be ended
	returned(t, r.limiter)
}

// lostConn is a connection that cannot be handed over: it fails when its deadlines are lifted for
// that.
type lostConn struct{ net.Conn }

func (c lostConn) SetDeadline(time.Time) error { return errors.New("lost") }

type lostListener struct{ net.Listener }

func (l lostListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return lostConn{c}, nil
}

// A connection that breaks when it is to be handed over leaves no watch behind, and nothing that
// passes through.
func TestLimitsOfALostHijack(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps},
		clients: flowcontrol.Limits{Watches: 10, PassThrough: 10}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(lostListener{ln}, ListenerConfig{AnswerAll: true}) }()
	for _, target := range []string{mapsPath + "?watch=1&resourceVersion=1", "/api/v1/pods?watch=1"} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
		if _, err := bufio.NewReader(c).ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want the end of the connection", target, err)
		}
		_ = c.Close()
	}
	returned(t, r.limiter)
	r.ended(configMaps, watch.EndAborted, 1)
	r.close()
	if err := await(t, served, "the end of Serve"); err != nil {
		t.Error(err)
	}
}
