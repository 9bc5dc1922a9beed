package serve

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/clientconn"
	"spillway/internal/h2"
	"spillway/internal/http1"
	"spillway/internal/passthrough"
)

// The settings are those of a kube-apiserver (W-1): stream windows that hold 99 % of the objects, a
// hundred streams per connection, and, once a request has proven its sender, a connection window
// that is large enough for all of them. Frames are smaller (h2): a frame is held as a whole.
const (
	http2Streams = 100
	http2Window  = 256 << 10
	// http2QuietTimeout is the silence of a client after which it is sent a ping, and http2PongTimeout
	// the time that it has to answer: a host that vanished takes its watches with it after 45 s, where
	// TCP would wait for minutes.
	http2QuietTimeout = 30 * time.Second
	http2PongTimeout  = 15 * time.Second
)

// http2Server serves the connections on which clients chose HTTP/2: those of a TLS listener that
// offers it. Package http1 hands them over after the handshake. A request here is what it is there:
// the same plan, the same answers; a watch is a slot of a writer, and all watches of one client
// share one connection.
//
// There are no upgrades: HTTP/2 forbids the headers, and extended CONNECT (RFC 8441) is not
// offered, by a kube-apiserver neither. Clients that upgrade (exec, attach, port-forward,
// WebSockets) ask for HTTP/1.1 in the handshake.
type http2Server struct {
	// Static after construction.
	server *Server

	mu struct {
		sync.Mutex
		closing bool // takes no more connections
		conns   map[*h2.Conn]struct{}
	}
	active sync.WaitGroup // one per connection
}

func newHTTP2Server(s *Server) *http2Server {
	h := &http2Server{server: s}
	h.mu.conns = map[*h2.Conn]struct{}{}
	return h
}

// serve serves one connection, maybe beyond its return.
func (h *http2Server) serve(c net.Conn, listener ListenerConfig, bounds http2Bounds) {
	below := clientconn.PacedConnOf(c)
	proving := &atomic.Bool{}
	certified := h.hasVerifiedCertificate(c, listener)
	var conn *h2.Conn
	conn = h2.New(c, h2.Options{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			response := w.(*h2.Response)
			h.proveSender(response, r, listener, proving)
			h.answerRequest(response, r, listener, certified, below)
		}),
		Log:        h.server.log,
		MaxStreams: http2Streams,
		Window:     http2Window,
		MaxHeader:  http.DefaultMaxHeaderBytes,
		Bounds:     bounds.boundsFor(certified),
		Peer:       clientconn.AddressOf(c.RemoteAddr()),
		Stall:      func() time.Duration { return h.server.eviction.StallTimeout(h.server.opts.StallTimeout) },
		Quiet:      http2QuietTimeout,
		Pong:       http2PongTimeout,
		Idle:       idleTimeout,
		Busy: func(some bool) {
			if some {
				below.SetState(clientconn.StateActive)
			} else {
				below.SetState(clientconn.StateIdle)
			}
		},
		Proven:      below.MarkProven,
		Leaving:     below.MarkLeaving,
		Ended:       func() { h.forgetConn(conn) },
		Nonblocking: h.nonblockingConn(c),
	})
	if !h.admitConn(conn) {
		conn.Close()
		return
	}
	if below != nil {
		below.OnEvict(func(gently bool) {
			if gently {
				conn.GoAway()
				return
			}
			below.Cut() // TLS would wait to say goodbye
			conn.Close()
		})
		_ = below.SetPace(h.server.opts.StallTimeout, 0) // fails on a closed connection, as what follows will
	}
	conn.Serve()
}

// nonblockingConn is what a connection is read from and written to without a goroutine, where that
// is possible.
func (h *http2Server) nonblockingConn(c net.Conn) h2.NonblockingConn {
	if !h.server.watches.HaveWriters() {
		return nil
	}
	if s := clientconn.NewPolledConn(c, h.server.poller); s != nil {
		return s
	}
	return nil
}

// proveSender reviews the credentials of a request beside it, unless its connection has proven its
// sender already: what passes through is not reviewed otherwise, and further requests of a known
// client need not wait for upstream's answer to it.
func (h *http2Server) proveSender(w *h2.Response, r *http.Request, listener ListenerConfig, proving *atomic.Bool) {
	if listener.Access == nil || w.IsProven() || !hasBearerToken(r) || !proving.CompareAndSwap(false, true) {
		return
	}
	a := listener.Access.Authenticator
	request := auth.AuthnRequest{Header: http.Header{}}
	for name, values := range r.Header {
		if a.ReadsHeader(name) {
			request.Header[name] = values
		}
	}
	prove := w.Prover()
	h.active.Go(func() {
		defer proving.Store(false)
		if a.Authenticate(h.server.base, request).Outcome == auth.Authenticated {
			prove()
		}
	})
}

func (h *http2Server) admitConn(c *h2.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closing {
		return false
	}
	h.mu.conns[c] = struct{}{}
	h.active.Add(1)
	h.server.metrics.http2.Inc()
	return true
}

// forgetConn follows the end of a connection, also of one that was not admitted.
func (h *http2Server) forgetConn(c *h2.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, admitted := h.mu.conns[c]; !admitted {
		return
	}
	delete(h.mu.conns, c)
	h.active.Done()
	h.server.metrics.http2.Dec()
}

// answerRequest answers one request.
func (h *http2Server) answerRequest(w *h2.Response, r *http.Request, listener ListenerConfig, certified bool,
	below *clientconn.PacedConn) {
	out := clientconn.NewPacedWriter(w, below, h.server.opts.StallTimeout)
	defer out.Close()
	anonymous := listener.anonymous(r, certified)
	out.EndsConnection = func(code int) bool { return anonymous || code == http.StatusUnauthorized }
	c := http2Call{
		NetResponder: clientconn.NetResponder{Writer: out, RequestFields: r.Header},
		server:       h.server, r: r, listener: listener,
	}
	defer c.recoverPanic()
	if below.IsOverLimit() {
		apistatus.TooManyRequests(apistatus.RetryAfter()).Write(c)
		below.GoAway()
		return
	}
	h.server.handle(c, listener)
}

// goAway tells clients to open another connection for their next request. Streams go on.
func (h *http2Server) goAway() {
	for _, c := range h.openConns() {
		c.GoAway()
	}
}

// openConns are the connections that there are.
func (h *http2Server) openConns() []*h2.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.mu.conns))
}

// leaveConns takes no more connections, and tells the clients of those that there are. A connection
// then ends with its last stream.
func (h *http2Server) leaveConns() {
	h.mu.Lock()
	h.mu.closing = true
	h.mu.Unlock()
	h.goAway()
}

// await returns when no connection is left, or when ctx ends.
func (h *http2Server) await(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		h.active.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// close ends the connections that are left.
func (h *http2Server) close() {
	h.mu.Lock()
	h.mu.closing = true
	h.mu.Unlock()
	for _, c := range h.openConns() {
		clientconn.ResetConn(c.NetConn())
		c.Close()
	}
	h.active.Wait()
}

// What a connection of HTTP/2 may hold of its own; see h2.Bounds.
const (
	http2HeadBytes     = 32 << 10
	http2UnprovenBytes = 32 << 10
	http2ProvenBytes   = 256 << 10
	http2Handlers      = 4
)

// http2Bounds are what each connection of HTTP/2 to a listener may hold: of a client with a good
// certificate, and of any other.
type http2Bounds struct{ certified, other *h2.Bounds }

func (b http2Bounds) boundsFor(certified bool) *h2.Bounds {
	if certified {
		return b.certified
	}
	return b.other
}

func (h *http2Server) bounds(listener ListenerConfig) http2Bounds {
	return http2Bounds{certified: h.boundsOf(listener, true), other: h.boundsOf(listener, false)}
}

func (h *http2Server) boundsOf(listener ListenerConfig, certified bool) *h2.Bounds {
	pool := h.server.opts.Limiter.HeaderBudget()
	return &h2.Bounds{
		Head: http2HeadBytes, Unproven: http2UnprovenBytes, Proven: http2ProvenBytes, Handlers: http2Handlers,
		Arrival: h.server.arrivals.Head, Large: http1.HeadArrivalTimeout,
		Reserve:     pool.Take,
		Release:     pool.Give,
		Credentials: func(r *http.Request) bool { return !listener.anonymous(r, certified) },
		Refuse: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := clientconn.NewPacedWriter(w.(*h2.Response), nil, h.server.opts.StallTimeout)
			defer out.Close()
			out.EndsConnection = func(int) bool { return listener.anonymous(r, certified) }
			apistatus.Failure(apistatus.HeadTooLarge()).Write(clientconn.NetResponder{Writer: out, RequestFields: r.Header})
		}),
	}
}

// hasVerifiedCertificate reports that the client has sent a certificate that is vouched for: any
// client can send one of its own making.
func (h *http2Server) hasVerifiedCertificate(c net.Conn, listener ListenerConfig) bool {
	secure, ok := c.(h2.TLSConn)
	if !ok || listener.Access == nil {
		return false
	}
	peer := secure.ConnectionState().PeerCertificates
	return listener.Access.Authenticator.IsVouchedFor(h.server.base, clientconn.AddressOf(c.RemoteAddr()), peer)
}

// anonymous reports that nothing in a request can name its sender, so that kube-apiserver takes it
// for system:anonymous: no certificate, and no bearer token where one is looked for.
func (f ListenerConfig) anonymous(r *http.Request, certified bool) bool {
	if f.AnswerAll || f.Identity == passthrough.IdentitySelf || certified {
		return false
	}
	return !hasBearerToken(r)
}

// hasBearerToken reports that a request has a bearer token. HTTP/2 has no upgrade, in which one may
// come elsewhere.
func hasBearerToken(r *http.Request) bool {
	_, ok := auth.BearerToken(r.Header)
	return ok
}
