package serve

//lint:file-ignore SA1019 net/http's own HTTP/2 can be told to send GOAWAY only by ending its server, and takes no connection that
// somebody else has accepted; golang.org/x/net/http2 is deprecated in its favour, and does both.

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
)

// The settings are those of a kube-apiserver (W-1): frames and stream windows that hold 99 % of the objects, a hundred streams
// per connection, and a connection window that is large enough for all of them.
const (
	http2Streams = 100
	http2Window  = 256 << 10
	// http2Quiet and http2Pong are when a silent client is asked whether it is still there, and how long it may take to say
	// so: a host that vanished takes its watches with it after 45 s, where TCP would wait for minutes.
	http2Quiet = 30 * time.Second
	http2Pong  = 15 * time.Second
)

// http2Server serves the connections on which clients chose HTTP/2, which are those of a TLS listener that offers it. fasthttp,
// which has no HTTP/2, hands them over after the handshake. A request here is what it is there: the same plan, the same
// answers; a watch is a goroutine, and all watches of one client share one connection.
//
// There are no upgrades: HTTP/2 forbids the headers, and extended CONNECT (RFC 8441) is not offered, by a kube-apiserver neither.
// Clients that upgrade (exec, attach, port-forward, WebSockets) ask for HTTP/1.1 in the handshake.
type http2Server struct {
	// Static after construction.
	server *Server
	h2     http2.Server
	base   http.Server // carries what http2.Server takes from a http.Server; it listens nowhere

	mu struct {
		sync.Mutex
		closing bool // takes no more connections
		conns   map[net.Conn]struct{}
	}
	active sync.WaitGroup // one per connection
}

func newHTTP2Server(s *Server) *http2Server {
	std, _ := zap.NewStdLogAt(s.log, zap.DebugLevel) // fails for unknown levels only
	h := &http2Server{
		server: s,
		h2: http2.Server{
			MaxConcurrentStreams:         http2Streams,
			MaxReadFrameSize:             http2Window,
			MaxUploadBufferPerStream:     http2Window,
			MaxUploadBufferPerConnection: http2Window * http2Streams,
			ReadIdleTimeout:              http2Quiet,
			PingTimeout:                  http2Pong,
			IdleTimeout:                  idleTimeout,
		},
		base: http.Server{ErrorLog: std, ReadHeaderTimeout: readTimeout},
	}
	h.base.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateIdle && h.closing() { // it was not known yet when all were told
			h.goAway()
		}
	}
	h.mu.conns = map[net.Conn]struct{}{}
	_ = http2.ConfigureServer(&h.base, &h.h2) // refuses lists of cipher suites, and here is none
	return h
}

type connKey struct{}

// serve serves one connection until its end.
func (h *http2Server) serve(c net.Conn, front Front) error {
	if !h.admit(c) {
		return nil // fasthttp closes it
	}
	defer h.left(c)
	below := pacer(c)
	if below != nil {
		_ = below.setPace(h.server.opts.StallTimeout, false) // fails on a closed connection, as what follows will
	}
	h.h2.ServeConn(c, &http2.ServeConnOpts{
		Context:    context.WithValue(context.Background(), connKey{}, below),
		BaseConfig: &h.base,
		Handler:    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.answer(w, r, front) }),
	})
	return nil
}

func (h *http2Server) admit(c net.Conn) bool {
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

func (h *http2Server) left(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.conns, c)
	h.active.Done()
	h.server.metrics.http2.Dec()
}

// answer answers one request.
func (h *http2Server) answer(w http.ResponseWriter, r *http.Request, front Front) {
	below, _ := r.Context().Value(connKey{}).(*conn)
	out := newNetWriter(w, below, h.server.opts.StallTimeout)
	defer out.close()
	c := http2Call{netResponder: netResponder{out, r.Header}, server: h.server, r: r, front: front}
	defer c.recovered()
	h.server.handle(c, front)
}

// goAway tells clients to open another connection for their next request. Streams go on.
func (h *http2Server) goAway() {
	_ = h.base.Shutdown(context.Background()) // waits for nothing: it has no listeners and no connections of its own
}

// leave takes no more connections, and tells the clients of those that there are. A connection then ends with its last stream.
func (h *http2Server) leave() {
	h.mu.Lock()
	h.mu.closing = true
	h.mu.Unlock()
	h.goAway()
}

func (h *http2Server) closing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.closing
}

// close ends the connections that are left.
func (h *http2Server) close() {
	h.mu.Lock()
	h.mu.closing = true
	for c := range h.mu.conns {
		reset(c)
	}
	h.mu.Unlock()
	h.active.Wait()
}
