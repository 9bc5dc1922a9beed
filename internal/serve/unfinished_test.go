package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// limitedProxy is a proxy with nothing in memory, in front of a handler that is reached over HTTP/2
// (reads and upgrades over HTTP/1.1).
type limitedProxy struct {
	limiter    *flowcontrol.Limiter
	server     *Server
	plain, tls string // addresses
	trust      *tls.Config
}

func newLimitedProxy(t *testing.T, limiter *flowcontrol.Limiter, upstream http.Handler) *limitedProxy {
	t.Helper()
	return newLimitedProxyOver(t, limiter, upstream, true)
}

func newLimitedProxyOver(t *testing.T, limiter *flowcontrol.Limiter, upstream http.Handler, http2 bool) *limitedProxy {
	t.Helper()
	u := httptest.NewUnstartedServer(upstream)
	u.EnableHTTP2 = http2
	u.StartTLS()
	base, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := u.Client().Transport.(*http.Transport)
	http1 := client.Clone()
	http1.Protocols = &http.Protocols{}
	http1.Protocols.SetHTTP1(true)
	http1.TLSClientConfig.NextProtos = nil
	forwarder := passthrough.NewForwarder(passthrough.ForwarderOptions{Base: base, Limiter: limiter,
		Client: passthrough.Transports{Any: client, HTTP1: http1, Fresh: client}})
	p := &limitedProxy{limiter: limiter, server: New(Options{Catalog: sourcetest.Resources{}, Forwarder: forwarder,
		Limiter: limiter, StallTimeout: patience, Metrics: NewMetrics(nil), Log: zap.NewNop()})}
	secured := &front{}
	served := make(chan error, 2)
	for address, config := range map[*string]*tls.Config{&p.plain: nil, &p.tls: secured.useTLS(true)} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*address = listener.Addr().String()
		go func() { served <- p.server.Serve(listener, ListenerConfig{TLS: config}) }()
	}
	p.trust = secured.tls
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.server.Close(now) // an error only says that something had to be ended
		<-served
		<-served
		client.CloseIdleConnections()
		http1.CloseIdleConnections()
		u.CloseClientConnections()
		u.Close()
	})
	return p
}

// dial connects from an address of this machine: with TLS, or without.
func (p *limitedProxy) dial(t *testing.T, from string, secure bool) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	address := p.plain
	if secure {
		address = p.tls
	}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if !secure {
		return c
	}
	config := p.trust.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	return tls.Client(c, config)
}

// closedAfter reads an answer, and fails the test unless its status is the one that is wanted and
// the connection ends with it, though the client neither sends the rest of its request nor leaves.
func closedAfter(t *testing.T, c net.Conn, want int) {
	t.Helper()
	began := time.Now()
	r := bufio.NewReader(c)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != want {
		t.Errorf("%s %q, %v, want %d", response.Status, body, err, want)
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF || n > 0 {
		t.Errorf("%d bytes, %v follow the answer after %v; want its end", n, err, time.Since(began))
	}
}

const unfinishedChunk = "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n"

// unfinished are requests with bodies that do not end.
var unfinished = map[string]string{
	"exec":  "POST /api/v1/namespaces/n/pods/x/exec?command=id HTTP/1.1\r\nHost: a\r\n" + unfinishedChunk,
	"log":   "GET /api/v1/namespaces/n/pods/x/log?follow=1 HTTP/1.1\r\nHost: a\r\n" + unfinishedChunk,
	"watch": "GET /api/v1/namespaces/n/pods?watch=1 HTTP/1.1\r\nHost: a\r\n" + unfinishedChunk,
	"proxy": "PUT /api/v1/namespaces/n/services/x/proxy/ HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" +
		strings.Repeat("x", 9000),
	"write": "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: a\r\n" + unfinishedChunk,
	"large write": "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" +
		strings.Repeat("x", 9000),
}

// refuseAtOnce is an upstream that answers before it has read the body, as kube-apiserver does.
func refuseAtOnce(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }

// Once its answer has ended, an exchange holds nothing, whatever of its request has not come: a
// client that sends no more of it keeps neither its connection nor a place.
func TestAnswerEndsTheExchange(t *testing.T) {
	for name, request := range unfinished {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				limiter := impatient(flowcontrol.Limits{Watches: 1, PassThrough: 1})
				p := newLimitedProxy(t, limiter, http.HandlerFunc(refuseAtOnce))
				for range 3 { // one at a time, if the others have left nothing
					c := p.dial(t, "127.0.0.1", secure)
					if _, err := io.WriteString(c, request); err != nil {
						t.Fatal(err)
					}
					closedAfter(t, c, http.StatusForbidden)
					returned(t, limiter)
				}
			})
		}
	}
}

// Over HTTP/2 the stream ends, and its place with it.
func TestAnswerEndsTheExchangeHTTP2(t *testing.T) {
	for _, target := range []string{"/api/v1/namespaces/n/pods/x/exec?command=id", "/api/v1/namespaces/n/configmaps"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			limiter := impatient(flowcontrol.Limits{Watches: 1, PassThrough: 1})
			p := newLimitedProxy(t, limiter, http.HandlerFunc(refuseAtOnce))
			transport := &http.Transport{TLSClientConfig: p.trust.Clone(), ForceAttemptHTTP2: true}
			t.Cleanup(transport.CloseIdleConnections)
			for range 3 {
				body, rest := io.Pipe()
				go func() { _, _ = rest.Write([]byte("0123456789")) }() // and nothing more
				request, err := http.NewRequestWithContext(deadline(t), http.MethodPost, "https://"+p.tls+target, body)
				if err != nil {
					t.Fatal(err)
				}
				response, err := transport.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusForbidden {
					t.Errorf("%s, %v", response.Status, err)
				}
				returned(t, limiter)
				_ = response.Body.Close()
				_ = rest.Close()
			}
		})
	}
}

// A request that is refused here does not keep its connection by the body that it has not sent.
func TestRefusalsEndUnfinishedBodies(t *testing.T) {
	for name, request := range unfinished {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := impatient(flowcontrol.Limits{Watches: 1, PassThrough: 1})
			p := newLimitedProxy(t, limiter, http.NotFoundHandler())
			defer occupy(t, limiter, flowcontrol.LimitWatches, 1)()
			defer occupy(t, limiter, flowcontrol.LimitPassThrough, 1)()
			c := p.dial(t, "127.0.0.1", false)
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			closedAfter(t, c, http.StatusTooManyRequests)
		})
	}
}

// Once upstream has ended an upgraded connection, a client that goes on sending keeps nothing.
func TestUpgradeEndsWithUpstream(t *testing.T) {
	limiter := impatient(flowcontrol.Limits{Watches: 1})
	p := newLimitedProxy(t, limiter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nbye")
		_ = c.Close()
	}))
	for _, secure := range []bool{false, true, true} { // one at a time, if the others have left nothing
		c := p.dial(t, "127.0.0.1", secure)
		if _, err := io.WriteString(c, "POST /api/v1/namespaces/n/pods/x/exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"+
			"Upgrade: SPDY/3.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		response, err := http.ReadResponse(r, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", response, err)
		}
		if all, err := io.ReadAll(r); err != nil || string(all) != "bye" {
			t.Errorf("%q, %v", all, err)
		}
		returned(t, limiter)
	}
}

// patiently is an upstream that reads a request to its end, however long that takes.
func patiently(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

// Bodies that do not come hold no seats that known users need, wherever they come from: those of up
// to a megabyte hold none, and of those that are sent on while they come unproven senders have an
// eighth of the seats.
func TestUnfinishedBodiesLeaveSeats(t *testing.T) {
	const seats, flood = 16, 100
	limiter := impatient(flowcontrol.Limits{PassThrough: seats, PassThroughPerUser: seats / 2})
	p := newLimitedProxy(t, limiter, http.HandlerFunc(patiently))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: patience}
	defer client.CloseIdleConnections()
	ask := func(method, body string) {
		t.Helper()
		const target = "/api/v1/namespaces/n/configmaps/a"
		request, err := http.NewRequest(method, "http://"+p.plain+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer known")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || string(answer) != body {
			t.Errorf("%s: %s %q, %v", method, response.Status, answer, err)
		}
	}
	ask(http.MethodGet, "") // upstream accepts the token
	for i := range flood {
		c := p.dial(t, fmt.Sprintf("127.0.0.%d", 2+i%2), false)
		request := unfinished["large write"]
		if i%3 > 0 {
			request = "PATCH /api/v1/namespaces/n/configmaps/a HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n" +
				"Authorization: Bearer made-up\r\n\r\n" + strings.Repeat("x", 9000)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the unproven part to be taken", func() bool {
		return limiter.GateStats(flowcontrol.LimitPassThrough).Held == seats/8
	})
	for range 20 {
		ask(http.MethodGet, "")
		ask(http.MethodPatch, "a patch")
		if held := limiter.GateStats(flowcontrol.LimitPassThrough).Held; held > seats/8+1 {
			t.Errorf("%d seats are held", held)
		}
	}
}

// Bodies of unproven senders are bounded together, also where nothing else is: what does not fit is
// sent on while it comes.
func TestUnprovenBodiesAreBounded(t *testing.T) {
	const bodies, size = 300, 1 << 20
	const most = 16<<20 + bodies*160<<10 // what is read ahead, and what each costs that is sent on, with upstream
	var arrived atomic.Int64
	release := make(chan struct{})
	p := newLimitedProxyOver(t, flowcontrol.NewLimiter(flowcontrol.Limits{}, flowcontrol.DefaultQueue, nil),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived.Add(1)
			<-release
		}), false) // over HTTP/2 the upstream of this process would hold them
	defer close(release)
	var sending sync.WaitGroup
	before := heapAfterGC()
	body := bytes.Repeat([]byte("x"), size-1)
	for range bodies {
		c := p.dial(t, "127.0.0.1", false)
		sending.Go(func() {
			fmt.Fprintf(c, "PATCH /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
			_, _ = c.Write(body) // ends with the test, if upstream does not take it
		})
		defer sending.Wait()
		defer c.Close()
	}
	eventually(t, "all but a few to be sent on", func() bool { return arrived.Load() >= bodies-16 })
	if held := heapAfterGC() - before; held > most {
		t.Errorf("%d bodies hold %d bytes, want %d at most", bodies, held, most)
	}
}

// heapAfterGC is how many bytes of the heap are in use.
func heapAfterGC() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An expectation that upstream does not know is refused as upstream refuses it, and the request is
// not carried out.
func TestUnknownExpectation(t *testing.T) {
	var asked atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	p := newLimitedProxy(t, nil, count)
	direct := httptest.NewServer(count)
	defer direct.Close()
	undated := func(answer string) string {
		before, after, _ := strings.Cut(answer, "Date: ")
		_, after, _ = strings.Cut(after, "\r\n")
		return before + after
	}
	for _, expect := range []string{"foo", "100-continued", "200-ok, foo"} {
		raw := "POST /x HTTP/1.1\r\nHost: a\r\nExpect: " + expect + "\r\nContent-Length: 2\r\n\r\nhi"
		want, _ := converse(t, direct.Listener.Addr().String(), raw, patience)
		got, ended := converse(t, p.plain, raw, patience)
		if !ended || !strings.HasPrefix(got, "HTTP/1.1 417 ") || sortedLines(undated(got)) != sortedLines(undated(want)) {
			t.Errorf("%s: answered %q, ended %t; upstream's server answers %q", expect, got, ended, want)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests were carried out", n)
	}
}

// sortedLines are the lines of a head in an order of their own.
func sortedLines(head string) string {
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
