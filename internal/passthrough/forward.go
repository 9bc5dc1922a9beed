package passthrough

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

const (
	// OwnedBodyLimit is the largest body, in bytes, that is copied before it is sent, so that it can
	// be sent again, and needs no permit while it arrives. Larger bodies are sent on while they
	// arrive.
	OwnedBodyLimit = 1 << 20
	// defaultStallTimeout is how long a client may take no byte of a short answer: as long as
	// upstream's own limit for a whole request.
	defaultStallTimeout = 60 * time.Second
)

// Transports carry requests upstream under the credentials of one lender: all of them add its
// credentials, or none adds any. They must not decompress (DisableCompression), and must not follow
// environment proxies unless meant to.
//
// There are three because clients share connections, and one request may end a connection for all
// that are on it. kube-apiserver ends a connection of HTTP/2 (GOAWAY) after a request that it could
// not authenticate (UnauthenticatedHTTP2DOSMitigation), and any client may send such a request.
// Requests that it has not begun to read must then be sent again. A transport does that by itself
// if it can.
type Transports struct {
	// Any had better be HTTP/2, so that thousands of watches are a few connections. Writes use it,
	// too, because HTTP/1.1 cannot safely repeat one when an idle connection turns out to be dead.
	Any http.RoundTripper
	// HTTP1 must speak HTTP/1.1 only. Upgrades need it. Reads that end cost half the processor time
	// over it, without the frames, windows and goroutines of HTTP/2. Requests without credentials use
	// it, too: each has its connection to itself while it lasts, so upstream may end that.
	HTTP1 http.RoundTripper
	// Fresh makes a connection for each request: a body that is sent on while it arrives cannot be
	// sent twice.
	Fresh http.RoundTripper
}

// carrier is the transport for a request, which may have credentials.
func (t Transports) carrier(in *Inbound, hasCredentials bool) http.RoundTripper {
	switch {
	case in.upgrade != "":
		return t.HTTP1
	case in.body == bodyStreamed:
		return t.Fresh
	case in.class == classRead, !hasCredentials:
		return t.HTTP1
	}
	return t.Any
}

// ForwarderOptions configure a Forwarder.
type ForwarderOptions struct {
	// Base is upstream's URL; its path, if any, goes in front of every request's.
	Base *url.URL
	// Client carries requests with nothing but the client's own credentials; it must not add any.
	Client Transports
	// Self is the same with the proxy's credentials. Empty unless a listener has IdentitySelf.
	Self Transports
	// As is the same with the credentials of an impersonator, for clients whose own cannot be
	// forwarded. Empty: no client is impersonated.
	As Transports
	// NeverAs are groups none of whose members is impersonated.
	NeverAs []string
	// IsClaimed reports whether a front proxy vouches for a user in a header, by its canonical key.
	// Upstream never gets such a header from a client, nor X-Remote-*. nil: there are no others.
	IsClaimed func(key string) bool
	// Limiter bounds what is in flight; nil: nothing is.
	Limiter *flowcontrol.Limiter
	// StallTimeout ends a short answer whose client takes no byte for so long. 0: 60 s.
	StallTimeout time.Duration
	// Arrivals are how long a client may take for what it sends; the zero value:
	// clientconn.DefaultReadTimeouts.
	Arrivals clientconn.ReadTimeouts
	// Metrics count; nil: nothing is registered.
	Metrics *ForwardMetrics
	Log     *zap.Logger
}

// Forwarder passes requests through to upstream unchanged, streaming both ways.
//
// There are two ways. A short request over HTTP/1.1 goes straight from the handler to a
// RoundTripper, with a body of its own, and the server streams the answer (direct.go). Everything
// else is streamed both ways (streamed.go): HTTP/2 by the goroutine of its handler; over HTTP/1.1
// upgrades, watches, logs, chunked and large bodies, by a goroutine that takes the connection from
// its server (taken.go).
//
// Both ways send the same headers, decided once, in begin. Invariants: every request that begin
// admits is ended exactly once, by the answer, the client, or Close. Once its answer has ended, a
// request holds nothing of any limit, and its connection is closed within clientconn.LingerTimeout
// or ready for the next request.
type Forwarder struct {
	opts      ForwarderOptions
	metrics   *ForwardMetrics
	log       *zap.Logger
	base      context.Context // parent of every exchange
	cancel    context.CancelFunc
	startOnce sync.Once
	poller    *clientconn.Poller
	tokens    *acceptedTokens

	mu struct {
		sync.Mutex
		closing   bool
		exchanges map[*exchange]struct{}
	}
	active sync.WaitGroup // one per exchange
}

// NewForwarder returns a Forwarder that starts its goroutine with the first request.
func NewForwarder(opts ForwarderOptions) *Forwarder {
	f := &Forwarder{opts: opts, metrics: opts.Metrics, log: cmp.Or(opts.Log, zap.NewNop()), tokens: newAcceptedTokens()}
	if f.metrics == nil {
		f.metrics = NewForwardMetrics(nil)
	}
	if f.opts.StallTimeout <= 0 {
		f.opts.StallTimeout = defaultStallTimeout
	}
	f.opts.Arrivals = cmp.Or(opts.Arrivals, clientconn.DefaultReadTimeouts)
	f.base, f.cancel = context.WithCancel(context.Background())
	f.mu.exchanges = make(map[*exchange]struct{})
	return f
}

// Base is upstream's URL.
func (f *Forwarder) Base() *url.URL { return f.opts.Base }

func (f *Forwarder) start() { f.poller = clientconn.NewPoller(f.log) }

// Close refuses new requests, waits until those in flight have ended or ctx is done, then ends the
// rest. It returns ctx's error if some had to be ended, and is idempotent.
func (f *Forwarder) Close(ctx context.Context) error {
	f.opts.Limiter.Close()
	f.mu.Lock()
	f.mu.closing = true
	f.mu.Unlock()
	f.startOnce.Do(func() {}) // nothing may start from now on

	ended := make(chan struct{})
	go func() {
		f.active.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
		f.abort()
		<-ended
	}
	f.cancel()
	f.poller.Close()
	return err
}

// abort ends every exchange at once.
func (f *Forwarder) abort() {
	f.mu.Lock()
	all := slices.Collect(maps.Keys(f.mu.exchanges))
	f.mu.Unlock()
	for _, x := range all {
		x.abort()
	}
}
