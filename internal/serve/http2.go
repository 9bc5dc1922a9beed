package serve

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/h2"
)

// The settings are those of a kube-apiserver (W-1): a hundred streams per connection, and stream
// windows that hold 99 % of the objects. Once a request has proven its sender, the connection's
// window is large enough for all streams. Frames are smaller (h2): a frame is held as a whole.
const (
	http2Streams     = 100
	http2WindowBytes = 256 << 10
	// A client that is silent for http2QuietTimeout is sent a ping, and has http2PongTimeout to
	// answer: the watches of a host that vanished end after 45 s, where TCP would wait for minutes.
	http2QuietTimeout = 30 * time.Second
	http2PongTimeout  = 15 * time.Second
)

// http2Server serves the connections on which clients chose HTTP/2: those of a TLS listener that
// offers it. Package http1 hands them over after the handshake. A request has the same plan and the
// same answers as there. A watch is a slot of a writer, and all watches of one client share one
// connection.
//
// There are no upgrades: HTTP/2 forbids the headers, and neither the proxy nor kube-apiserver
// offers extended CONNECT (RFC 8441). Clients that upgrade (exec, attach, port-forward, WebSockets)
// choose HTTP/1.1 in the handshake.
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
	client := &http2Client{
		server: h, listener: listener, below: clientconn.PacedConnOf(c), isCertified: h.hasVerifiedCertificate(c, listener),
	}
	options := h.connOptions(c, client, bounds)
	var conn *h2.Conn
	options.Ended = func() { h.forgetConn(conn) }
	conn = h2.New(c, options)
	if !h.admitConn(conn) {
		conn.Close()
		return
	}
	client.bindConn(conn)
	conn.Serve()
}

// connOptions says how a client's connection is served, without its end.
func (h *http2Server) connOptions(c net.Conn, client *http2Client, bounds http2Bounds) h2.Options {
	return h2.Options{
		Handler:     client,
		Log:         h.server.log,
		MaxStreams:  http2Streams,
		Window:      http2WindowBytes,
		MaxHeader:   http.DefaultMaxHeaderBytes,
		Bounds:      bounds.boundsFor(client.isCertified),
		Peer:        clientconn.AddressOf(c.RemoteAddr()),
		Stall:       func() time.Duration { return h.server.eviction.StallTimeout(h.server.opts.StallTimeout) },
		Quiet:       http2QuietTimeout,
		Pong:        http2PongTimeout,
		Idle:        idleTimeout,
		Busy:        client.setBusy,
		Proven:      client.below.MarkProven,
		Leaving:     client.below.MarkLeaving,
		Nonblocking: h.nonblockingConn(c),
	}
}

// nonblockingConn reads and writes a connection without a goroutine; nil: that is not possible.
func (h *http2Server) nonblockingConn(c net.Conn) h2.NonblockingConn {
	if !h.server.watches.HaveWriters() {
		return nil
	}
	if s := clientconn.NewPolledConn(c, h.server.poller); s != nil {
		return s
	}
	return nil
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

// goAway has clients open another connection for their next request. Streams go on.
func (h *http2Server) goAway() {
	for _, c := range h.openConns() {
		c.GoAway()
	}
}

// openConns are the connections that are open.
func (h *http2Server) openConns() []*h2.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.mu.conns))
}

// leaveConns takes no more connections, and sends a GOAWAY on those that are open. A connection
// then ends with its last stream.
func (h *http2Server) leaveConns() {
	h.refuseConns()
	h.goAway()
}

func (h *http2Server) refuseConns() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closing = true
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
	h.refuseConns()
	for _, c := range h.openConns() {
		clientconn.ResetConn(c.NetConn())
		c.Close()
	}
	h.active.Wait()
}

// hasVerifiedCertificate reports that the client has sent a certificate that the Authenticator
// vouches for: any client can send one of its own making.
func (h *http2Server) hasVerifiedCertificate(c net.Conn, listener ListenerConfig) bool {
	secure, ok := c.(h2.TLSConn)
	if !ok || listener.Access == nil {
		return false
	}
	peer := secure.ConnectionState().PeerCertificates
	return listener.Access.Authenticator.IsVouchedFor(h.server.base, clientconn.AddressOf(c.RemoteAddr()), peer)
}
