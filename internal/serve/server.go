// Package serve is the request pipeline: it authorises a request, plans it, and answers LIST, WATCH
// and GET from memory where upstream would give exactly that answer. Everything else passes
// through.
//
// A call is the protocol's side of a request: HTTP/1.1 (package http1) or HTTP/2 (http2Call).
// Server.decide settles once for both what becomes of it, an outcome: an answer from here, a watch,
// or a passage to upstream. request.complete carries that out, and puts it on record.
//
// Invariant: a request is answered as upstream would, or by upstream (design D1). There is no third
// answer: no stale state passed off as fresh, no empty list while starting.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"spillway/internal/audit"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/http1"
	"spillway/internal/memory"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/tracing"
	"spillway/internal/watch"
	"spillway/internal/watchdog"
)

// Options configure a Server.
type Options struct {
	Catalog   source.Catalog
	Forwarder *passthrough.Forwarder
	// Own carries requests upstream for several clients at once, under the proxy's own credentials;
	// nil: there are none. It must not decompress.
	Own http.RoundTripper
	// Semantics are whose answers requests get where versions of Kubernetes differ.
	Semantics plan.Semantics
	// MaxStaleness is how old a state may be that is shown while upstream is unreachable.
	MaxStaleness time.Duration
	// Ready returns why this proxy is not ready, or nil; probes of ReadinessPath call it. If it is not
	// set, they pass through.
	Ready func() error
	// Unreachable returns why upstream has not answered since the start, or nil once it has. Every
	// request calls it, and until then none is answered. If it is not set, upstream has answered.
	Unreachable func() error
	// StallTimeout is how long a client may take nothing before it is evicted.
	StallTimeout time.Duration
	// Limiter is the Forwarder's, too; nil: nothing is limited.
	Limiter *flowcontrol.Limiter
	// Goroutines gives each watch a goroutine, even where writers could serve them all. Only tests
	// set it.
	Goroutines bool
	// MaxConnections is how many connections clients may have, and MaxConnectionsPerPeer how many from
	// one IP address. 0: any number.
	MaxConnections, MaxConnectionsPerPeer int

	// Clock watches the loops that deliver watches; nil: nothing does.
	Clock *watchdog.Monitor

	// Audit puts on record what is answered here; nil: nothing is.
	Audit *audit.Logger
	// Tracer makes spans of requests; nil: there are none.
	Tracer *tracing.Tracer

	Metrics *Metrics
	Log     *zap.Logger
}

// ListenerConfig is what differs between listeners.
type ListenerConfig struct {
	// TLS is nil for a plain listener. HTTP/2 is what it offers by its NextProtos; a plain listener
	// speaks HTTP/1.1 only.
	TLS *tls.Config
	// StrictTransportSecurity are the directives of that header, as kube-apiserver sends them; none
	// without TLS.
	StrictTransportSecurity []string
	// Guard admits requests to a plain listener; nil admits all.
	Guard *passthrough.PlainGuard
	// Identity decides whose credentials requests that pass through have upstream.
	Identity passthrough.IdentityMode
	// Access authenticates and authorizes; nil: no user is known, and only AnswerAll and Identity let
	// a request be answered from memory.
	Access *Access
	// Self returns the user on record for requests that act as the proxy itself, or nil while it is
	// not known. If it is not set, no record needs it.
	Self func() *auth.Identity
	// AnswerAll answers every request from memory, without authorization.
	AnswerAll bool
}

// Server answers requests on any number of listeners. Streams outlive the handlers of their
// requests; package watch counts and drains them.
type Server struct {
	// Static after construction.
	opts            Options
	planner         plan.Planner
	metrics         *Metrics
	log             *zap.Logger
	poller          *clientconn.Poller
	watches         *watch.Manager
	coalescer       *passthrough.Coalescer
	warnings        lastWarnings
	cpu             *clientconn.CPULimiter
	eviction        *clientconn.EvictionPolicy
	longQueries     longQueryLimit
	unprovenWatches *rate.Limiter // of watches that pass through because nothing can be proven
	arrivals        clientconn.ReadTimeouts
	conns           *clientconn.Connections
	http2           *http2Server
	base            context.Context // parent of every stream
	stop            context.CancelCauseFunc

	mu struct {
		sync.Mutex
		listenerServers []*http1.ListenerServer
		listeners       []net.Listener
	}
}

// New makes a server without listeners. Close it.
func New(opts Options) *Server {
	s := &Server{opts: opts, metrics: opts.Metrics, log: opts.Log, cpu: clientconn.NewCPULimiter(runtime.GOMAXPROCS(0)),
		eviction: &clientconn.EvictionPolicy{}, longQueries: newLongQueryLimit(),
		unprovenWatches: rate.NewLimiter(unprovenWatchRate, unprovenWatchBurst), arrivals: clientconn.DefaultReadTimeouts}
	s.planner = plan.Planner{Catalog: opts.Catalog, WatchTimeout: randomWatchTimeout, Semantics: opts.Semantics}
	s.base, s.stop = context.WithCancelCause(context.Background())
	s.poller = clientconn.NewPoller(opts.Log)
	s.watches = watch.NewManager(watch.Options{
		Base: s.base, StallTimeout: opts.StallTimeout, Goroutines: opts.Goroutines || s.poller == nil, Limiter: opts.Limiter,
		CPU: s.cpu, Eviction: s.eviction, Panicked: s.reportPanic, Withdraw: s.withdrawEncoding,
		Clock: opts.Clock, Metrics: opts.Metrics.watches, Log: opts.Log,
	})
	s.coalescer = passthrough.NewCoalescer(s.base, opts.Own, opts.Forwarder.Base())
	s.conns = clientconn.NewConnections(opts.MaxConnections, opts.MaxConnectionsPerPeer, opts.Metrics.conns, s.base.Done())
	s.http2 = newHTTP2Server(s)
	opts.Limiter.OnCrowded(s.eviction.EndCrowded)
	return s
}

// Watches of the most recent state pass through at unprovenWatchRate per second, and
// unprovenWatchBurst at once, while nothing can be proven. When upstream is too busy to prove
// anything, a herd of watches would keep it so.
const (
	unprovenWatchRate  = 10
	unprovenWatchBurst = 20
)

// randomWatchTimeout spreads the ends of watches that do not say how long they last (W-29, design
// D14).
func randomWatchTimeout() time.Duration {
	const least = 30 * time.Minute
	return least + rand.N(least) // #nosec G404 -- spreads times
}

// Serve answers requests on ln until Close, which closes ln, and returns then.
func (s *Server) Serve(ln net.Listener, listener ListenerConfig) error {
	server := s.newListenerServer(listener)
	if !s.addListener(ln, server) {
		return ln.Close()
	}
	accepted := clientconn.Listener{
		Listener: ln, CPU: s.cpu, Eviction: s.eviction, Conns: s.conns, TLS: listener.TLS, Log: s.log,
	}
	if listener.TLS != nil && len(listener.StrictTransportSecurity) > 0 {
		directives := strings.Join(listener.StrictTransportSecurity, "; ")
		accepted.Strict = &directives
	}
	if err := server.Serve(accepted); err != nil {
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// addListener reports false if the server is closed.
func (s *Server) addListener(ln net.Listener, server *http1.ListenerServer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base.Err() != nil {
		return false
	}
	s.mu.listeners, s.mu.listenerServers = append(s.mu.listeners, ln), append(s.mu.listenerServers, server)
	return true
}

// newListenerServer makes what serves HTTP/1.1 on a listener, and hands over HTTP/2.
func (s *Server) newListenerServer(listener ListenerConfig) *http1.ListenerServer {
	bounds := s.http2.newBounds(listener)
	return http1.New(http1.ServerOptions{
		Handle:   func(c http1.Call) { s.handle(c, listener) },
		HTTP2:    func(c net.Conn) { s.http2.serve(c, listener, bounds) },
		Identity: listener.Identity, Trusted: listener.AnswerAll, Forwarder: s.opts.Forwarder, Watches: s.watches,
		Poller:   s.poller,
		Heads:    s.opts.Limiter.HeaderBudget(),
		Arrivals: s.arrivals, StallTimeout: s.opts.StallTimeout, IdleTimeout: idleTimeout, Panicked: s.reportPanic,
		Log: s.log,
	})
}

// idleTimeout is how long a connection without requests is kept.
const idleTimeout = 3 * time.Minute

// Watches lists the open watches, by ID.
func (s *Server) Watches() []watch.Watch { return s.watches.Watches() }

// Rejections are the users whose requests limits have rejected, the last one first.
func (s *Server) Rejections() []flowcontrol.RejectedFlow { return s.opts.Limiter.Rejections() }

// EndCounts is how many watches have ended for each reason, and the last few evictions, oldest
// first.
func (s *Server) EndCounts() (map[watch.EndReason]uint64, []watch.Eviction) {
	return s.watches.EndCounts()
}

func (s *Server) reportPanic(p any) {
	s.metrics.panics.Inc()
	s.log.Error("BUG: a request panicked; please report this",
		passthrough.PanicField(p), zap.ByteString("stack", debug.Stack()))
}

// Close stops listeners, streams, and what passes through, at once. Drain first to spare clients.
func (s *Server) Close(ctx context.Context) error {
	s.stop(watch.EndAborted.AsError())
	s.watches.RefuseNew()
	s.mu.Lock()
	servers, listeners := s.mu.listenerServers, s.mu.listeners
	s.mu.Unlock()
	for _, ln := range listeners {
		_ = ln.Close() // fasthttp closes only those that it serves already
	}
	s.opts.Limiter.Close()
	s.http2.leaveConns()
	s.watches.CutConnections()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(ctx))
	}
	s.http2.await(ctx)
	s.watches.Wait()
	s.coalescer.Wait()
	errs = append(errs, s.opts.Forwarder.Close(ctx))
	s.http2.close()
	s.poller.Close()
	return errors.Join(errs...)
}

// Drain ends the streams one by one, spread over about the period, each right after a bookmark, so
// that clients reconnect with a fresh resourceVersion and not all at once (design D14). New watches
// are refused from now on, and each HTTP/2 connection gets a GOAWAY at once, so that its client
// opens another one for its next request. It returns when no stream is left, or when ctx ends.
func (s *Server) Drain(ctx context.Context, period time.Duration) {
	s.watches.RefuseNew()
	s.http2.goAway()
	s.watches.Drain(ctx, period)
}

// CountOpen is how many connections and watches there are.
func (s *Server) CountOpen() int { return s.conns.Open() + s.watches.Len() }

// KernelBytes is about how many bytes the kernel holds for clients that do not take what was sent
// to them. It is an estimate: a kernel reports the bytes of the whole machine, or of one client in
// a system call.
func (s *Server) KernelBytes() int64 { return s.eviction.KernelBytes() }

// Degrade makes the server refuse and evict while memory is short. The guard calls it again and
// again while a step is taken. The server then
//   - ends watches with heavy selectors, and admits hardly any
//   - makes large answers one after another
//   - evicts within seconds clients that read nothing, or little of a large answer, the most
//     expensive answer first
//   - evicts connections that have proven nothing, the oldest first
func (s *Server) Degrade(step memory.Step) {
	short := step >= memory.RefuseAndEvict
	s.opts.Limiter.SetLowMemory(short)
	if s.eviction.SetLowMemory(short) && short {
		s.watches.ShedHeavy()
		s.watches.RecheckSlots()
	}
	if short {
		s.eviction.EndSlow()
		s.conns.EvictUnproven()
	}
}
