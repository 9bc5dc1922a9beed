// Package serve speaks the Kubernetes protocol over fasthttp: it plans each request, answers LIST, WATCH and GET from memory
// where that is exactly what upstream would answer, and passes everything else through.
//
// Invariant: a request is answered as upstream would, or by upstream (design D1). There is no third answer: no stale state
// passed off as fresh, no empty list while starting.
package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"spillway/internal/cache"
)

// Options configure a Server.
type Options struct {
	Catalog   Catalog
	Forwarder *Forwarder
	// StallTimeout is how long a client may take nothing before it is evicted.
	StallTimeout time.Duration
	Metrics      *Metrics
	Log          *zap.Logger
}

// Front is what differs between listeners.
type Front struct {
	// TLS is nil for a plain listener.
	TLS *tls.Config
	// Guard admits requests to a plain listener; nil admits all.
	Guard *PlainGuard
	// Identity is as whom requests that pass through reach upstream.
	Identity Identity
	// AnswerAll answers from memory whoever asks.
	AnswerAll bool
}

// Server answers requests on any number of listeners. Its streams outlive fasthttp's view of their connections, so it counts
// and drains them itself.
type Server struct {
	// Static after construction.
	opts    Options
	planner Planner
	deliver deliverer
	metrics *Metrics
	log     *zap.Logger
	gone    *departures
	base    context.Context // parent of every stream
	stop    context.CancelCauseFunc

	mu struct {
		sync.Mutex
		draining  bool
		fronts    []*fasthttp.Server
		listeners []net.Listener
		streams   map[*stream]struct{}
	}
	active sync.WaitGroup // one per stream
}

// New makes a server without listeners. Close it.
func New(opts Options) *Server {
	s := &Server{opts: opts, metrics: opts.Metrics, log: opts.Log, deliver: goroutines{}}
	s.planner = Planner{Catalog: opts.Catalog, WatchTimeout: randomWatchTimeout}
	s.base, s.stop = context.WithCancelCause(context.Background())
	s.gone = newDepartures(opts.Log)
	s.mu.streams = map[*stream]struct{}{}
	return s
}

// randomWatchTimeout spreads the ends of watches that do not say how long they last (W-29, design D14).
func randomWatchTimeout() time.Duration {
	const least = 30 * time.Minute
	return least + rand.N(least)
}

// Serve answers requests on ln until Close, which closes ln, and returns then.
func (s *Server) Serve(ln net.Listener, front Front) error {
	server := s.fasthttp(front)
	s.mu.Lock()
	closed := s.base.Err() != nil
	if !closed {
		s.mu.fronts, s.mu.listeners = append(s.mu.fronts, server), append(s.mu.listeners, ln)
	}
	s.mu.Unlock()
	if closed {
		return ln.Close()
	}
	var paced net.Listener = listener{Listener: ln}
	if front.TLS != nil {
		paced = tls.NewListener(paced, front.TLS)
	}
	if err := server.Serve(paced); err != nil {
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// readTimeout bounds a TLS handshake, a request's head, and a body that is small enough to be read before it is sent on.
// Larger bodies leave fasthttp, and its deadlines, first.
const readTimeout = time.Minute

func (s *Server) fasthttp(front Front) *fasthttp.Server {
	server := &fasthttp.Server{
		KeepHijackedConns:            true,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReduceMemoryUsage:            true,
		ReadBufferSize:               16 << 10,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		ReadTimeout:                  readTimeout,
		IdleTimeout:                  3 * time.Minute,
		TCPKeepalive:                 true,
		TCPKeepalivePeriod:           15 * time.Second,
		Concurrency:                  1 << 20,
		Logger:                       serverLog{s.log},
	}
	server.Handler = func(ctx *fasthttp.RequestCtx) {
		defer s.recovered(ctx)
		s.handle(ctx, server, front)
	}
	return server
}

// recovered turns a panic, which fasthttp would let kill the process, into a 500 and a log line.
func (s *Server) recovered(ctx *fasthttp.RequestCtx) {
	if p := recover(); p != nil {
		s.panicked(p)
		ctx.Response.Reset()
		writeStatus(ctx, newStatus(http.StatusInternalServerError, "InternalError", "this request ran into a bug of the proxy", nil))
	}
}

func (s *Server) panicked(p any) {
	s.metrics.panics.Inc()
	s.log.Error("BUG: a request panicked; please report this", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
}

// handle answers one request: here if the plan says so and still can, else from upstream.
func (s *Server) handle(ctx *fasthttp.RequestCtx, server *fasthttp.Server, front Front) {
	if p := pacer(ctx.Conn()); p != nil {
		p.unpace()
	}
	if front.Guard != nil && !front.Guard.Admit(ctx, front.Identity) {
		return
	}
	plan := s.planner.Plan(readRequest(ctx, front))
	if plan.Action != Upstream && s.answer(ctx, server, plan) {
		return
	}
	s.opts.Forwarder.Forward(ctx, front.Identity)
}

// readyWait is how long a request is held while a resource's first state is on its way (design D14).
const readyWait = 3 * time.Second

// answer answers here, or reports false if upstream must.
func (s *Server) answer(ctx *fasthttp.RequestCtx, server *fasthttp.Server, plan Plan) bool {
	r := plan.Source.Resource()
	if plan.List != nil && plan.Action == FromCacheProven {
		return false // upstream answers sooner than it can be proven
	}
	if plan.Get == nil && plan.Action != Refuse && !s.awaitReady(r) && s.opts.Catalog.Find(r.Info.GVR) == plan.Source && !r.Retired() {
		s.metrics.notReady.WithLabelValues(r.Info.String()).Inc()
		writeStatus(ctx, statusNotReady(1))
		return true
	}
	switch {
	case r.Retired() || !r.Ready(): // given up meanwhile: whatever upstream says now, it does not say here
		return false
	case plan.Action == Refuse:
		s.refuse(ctx, plan.Source, plan.Status)
		return true
	case plan.Get != nil:
		return s.get(ctx, plan)
	case plan.List != nil:
		return s.list(ctx, plan)
	case plan.Watch.Start == EventsFromNewest && !s.fromNewest(plan):
		return false
	}
	s.watch(ctx, server, plan)
	return true
}

// fromNewest finds out what upstream's present is, where a watch is to begin: what the client does once it has the head of the
// answer is an event that it must see. It reports false if upstream does not say.
func (s *Server) fromNewest(plan Plan) bool {
	ctx, cancel := s.within(arriveWait)
	defer cancel()
	rv, err := plan.Source.Fresh.Newest(ctx)
	if err != nil {
		return false
	}
	plan.Watch.RV, plan.Watch.Start = rv, EventsFrom
	return true
}

// awaitReady waits for the resource's first state, unless it has been given up.
func (s *Server) awaitReady(r *cache.Resource) bool {
	if r.Ready() {
		return true
	}
	ctx, cancel := context.WithTimeout(s.base, readyWait)
	defer cancel()
	for {
		changed := r.Changed()
		if r.Ready() || r.Retired() {
			return r.Ready()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// within is a context for a short wait that also ends with the server.
func (s *Server) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.base, d)
}

// readRequest copies what a plan needs.
func readRequest(ctx *fasthttp.RequestCtx, front Front) Request {
	h := &ctx.Request.Header
	path, query, _ := bytes.Cut(h.RequestURI(), []byte("?"))
	plain := bytes.Equal(h.Protocol(), []byte("HTTP/1.1")) && h.ContentLength() <= 0 && len(h.Peek("Transfer-Encoding")) == 0
	return Request{
		Method:    string(h.Method()),
		Path:      string(path),
		RawQuery:  string(query),
		Accept:    string(bytes.Join(h.PeekAll("Accept"), []byte(","))),
		UserAgent: string(h.UserAgent()),
		Upgrade:   !plain || len(h.Peek("Upgrade")) > 0,
		Trusted:   front.AnswerAll || front.Identity == IdentitySelf && anonymous(h),
	}
}

// anonymous reports that the request brings no identity of its own.
func anonymous(h *fasthttp.RequestHeader) bool {
	if len(h.PeekAll("Authorization")) > 0 {
		return false
	}
	for key := range h.All() {
		if len(key) > len("Impersonate-") && bytes.EqualFold(key[:len("Impersonate-")], []byte("Impersonate-")) {
			return false
		}
	}
	return true
}

// Close stops at once: listeners, streams, and what passes through. Drain first to spare clients.
func (s *Server) Close(ctx context.Context) error {
	s.stop(endError(EndAborted))
	s.mu.Lock()
	s.mu.draining = true
	fronts, listeners := s.mu.fronts, s.mu.listeners
	s.mu.Unlock()
	for _, ln := range listeners {
		_ = ln.Close() // fasthttp closes only those that it serves already
	}
	var errs []error
	for _, front := range fronts {
		if err := front.ShutdownWithContext(ctx); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.closeStreams()
	s.active.Wait()
	errs = append(errs, s.opts.Forwarder.Close(ctx))
	s.gone.close()
	return errors.Join(errs...)
}

// serverLog takes fasthttp's log lines, which are about single connections.
type serverLog struct{ log *zap.Logger }

// Printf implements fasthttp.Logger.
func (l serverLog) Printf(format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...), zap.String("component", "fasthttp"))
}
