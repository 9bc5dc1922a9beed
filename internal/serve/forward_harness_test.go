package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/h2"
	"spillway/internal/http1"
	"spillway/internal/passthrough"
	"spillway/internal/source/sourcetest"
)

// front is a fasthttp server that passes everything through to a net/http upstream.
type front struct {
	forwarder *passthrough.Forwarder
	registry  *prometheus.Registry
	addr      string
	tls       *tls.Config // of clients; nil for plain
	http2     bool        // clients use it
	upstream  *httptest.Server
}

type frontOptions struct {
	tls      bool
	http2    bool // over TLS
	identity passthrough.IdentityMode
	as       *auth.Impersonation // identity of requests over HTTP/1.1
	took     func(time.Duration)
	mutate   func(*passthrough.ForwarderOptions)
}

// tookObserver notes how long upstream took.
type tookObserver struct {
	passthrough.Unobserved
	took func(time.Duration)
}

func (o tookObserver) AnswerTook(took time.Duration) {
	if o.took != nil {
		o.took(took)
	}
}

func newFront(t *testing.T, upstream http.Handler, o frontOptions) *front {
	t.Helper()
	u := httptest.NewServer(upstream)
	base, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, self := bareTransport(), bareTransport()
	fr := &front{upstream: u, registry: prometheus.NewRegistry()}
	opts := passthrough.ForwarderOptions{
		Base: base, Client: all(client), Self: all(withToken{self}),
		Metrics: passthrough.NewForwardMetrics(fr.registry),
	}
	if o.mutate != nil {
		o.mutate(&opts)
	}
	fr.forwarder = passthrough.NewForwarder(opts)
	t.Cleanup(func() {
		for _, tr := range []*http.Transport{client, self} {
			tr.CloseIdleConnections()
		}
		u.CloseClientConnections()
		u.Close()
	})
	server := passThroughServer(func(ctx *fasthttp.RequestCtx) {
		fr.forwarder.Forward(http1.RequestOf(ctx), passthrough.SenderIdentity{Listener: o.identity, As: o.as,
			Flow: flowcontrol.AddrFlow(clientconn.AddressOf(ctx.RemoteAddr()))}, tookObserver{took: o.took})
	})
	if o.http2 {
		passing := New(Options{Catalog: sourcetest.Resources{}, Forwarder: fr.forwarder, StallTimeout: patience,
			Metrics: NewMetrics(nil), Log: zap.NewNop()})
		server.NextProto("h2", func(c net.Conn) error {
			listener := ListenerConfig{Identity: o.identity}
			passing.http2.serve(c, listener, passing.http2.newBounds(listener))
			for slices.ContainsFunc(passing.http2.openConns(), func(h *h2.Conn) bool { return h.NetConn() == c }) {
				time.Sleep(time.Millisecond) // fasthttp closes what a handler has left
			}
			return nil
		})
		// after everything else: nothing is left that could fail
		t.Cleanup(func() { _ = passing.Close(context.Background()) })
		defer t.Cleanup(passing.http2.close) // before the front, which waits for its connections
	}
	fr.serve(t, server, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = fr.forwarder.Close(ctx) // an error only says that something had to be ended
	})
	return fr
}

// serveFront is a front without upstream.
func serveFront(t *testing.T, server *fasthttp.Server) *front {
	t.Helper()
	fr := &front{}
	fr.serve(t, server, frontOptions{})
	return fr
}

func (f *front) serve(t *testing.T, server *fasthttp.Server, o frontOptions) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = listener.Addr().String()
	if o.tls || o.http2 {
		listener = tls.NewListener(listener, f.useTLS(o.http2))
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Errorf("stopping the front: %v", err)
		}
		<-served
	})
}

// passThroughServer has the settings that Forwarder relies on.
func passThroughServer(h fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      h,
		KeepHijackedConns:            true,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReduceMemoryUsage:            true,
		ReadBufferSize:               16 << 10,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		Logger:                       silentLogger{},
	}
}

// silentLogger drops fasthttp's complaints about the broken requests that tests send.
type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

func bareTransport() *http.Transport {
	return &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}
}

// all is one transport for everything.
func all(t http.RoundTripper) passthrough.Transports {
	return passthrough.Transports{Any: t, HTTP1: t, Fresh: t}
}

// withToken stands for a transport with the proxy's own credentials.
type withToken struct{ next http.RoundTripper }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Add("Authorization", "Bearer own")
	return w.next.RoundTrip(r)
}

// useTLS borrows the certificate that httptest makes for 127.0.0.1.
func (f *front) useTLS(http2 bool) *tls.Config {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	f.tls = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	f.tls.NextProtos = nil
	f.http2 = http2
	protocols := []string{"http/1.1"}
	if http2 {
		protocols = []string{"h2", "http/1.1"}
	}
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: protocols}
}

func (f *front) url() string {
	if f.tls != nil {
		return "https://" + f.addr
	}
	return "http://" + f.addr
}

// client keeps one connection at most.
func (f *front) client(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true, TLSClientConfig: f.tls.Clone(), MaxConnsPerHost: 1,
		ForceAttemptHTTP2: f.http2}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// dial opens a raw connection, which the test closes or the cleanup does.
func (f *front) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := dialFront(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// await fails the test if ch stays silent.
func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// both runs a test on a plain and on a TLS front.
func both(t *testing.T, run func(t *testing.T, o frontOptions)) {
	t.Run("plain", func(t *testing.T) { run(t, frontOptions{}) })
	t.Run("tls", func(t *testing.T) { run(t, frontOptions{tls: true}) })
}

// every runs a test on all of them, and on one whose clients use HTTP/2. That is for tests whose
// clients are net/http's.
func every(t *testing.T, run func(t *testing.T, o frontOptions)) {
	both(t, run)
	t.Run("http2", func(t *testing.T) { run(t, frontOptions{http2: true}) })
}

// metric is the value of one series; its labels are name=value, sorted.
func (f *front) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no series %s%v", name, labels)
	return 0
}

func dialFront(f *front) (net.Conn, error) {
	c, err := net.Dial("tcp", f.addr)
	if err != nil || f.tls == nil {
		return c, err
	}
	cfg := f.tls.Clone()
	cfg.ServerName = "example.com"
	return tls.Client(c, cfg), nil
}
