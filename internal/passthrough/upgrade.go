package passthrough

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"spillway/internal/clientconn"
)

// replayWriter is what ReverseProxy writes a replayed answer to. It undoes two habits of net/http
// that a client would notice: guessing a Content-Type that upstream did not send, and, on an
// upgrade, losing what the client sent right behind its request.
type replayWriter struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *replayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *replayWriter) WriteHeader(code int) {
	h := w.Header()
	switch {
	case code < http.StatusOK && code != http.StatusSwitchingProtocols:
		responseHeader(h) // net/http's proxy leaves in what comes before the answer whatever ends at a proxy
	case code >= http.StatusOK && h["Content-Type"] == nil:
		h["Content-Type"] = nil
	}
	const header = clientconn.StrictTransportSecurityHeader
	if strict := clientconn.StrictTransportSecurity(w.x.conn); strict != "" && h[header] == nil {
		h.Set(header, strict)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Hijack implements http.Hijacker: upstream has agreed to switch protocols, the connection is raw
// from here on.
func (w *replayWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	upgrades := w.x.f.metrics.upgrades
	upgrades.Inc()
	return &upgradedConn{Conn: conn, early: buffered.Reader, closed: sync.OnceFunc(upgrades.Dec)}, buffered, nil
}

// upgradedConn is a client's connection after 101. ReverseProxy reads from the connection only, so
// what net/http had buffered of it is read here.
type upgradedConn struct {
	net.Conn
	early  *bufio.Reader // nil once empty; owned by Read
	closed func()        // only its first call does anything
}

// Read implements net.Conn.
func (c *upgradedConn) Read(p []byte) (int, error) {
	if c.early != nil {
		if n := c.early.Buffered(); n > 0 {
			return c.early.Read(p[:min(n, len(p))])
		}
		c.early = nil
	}
	return c.Conn.Read(p)
}

// CloseWrite passes the end of upstream's direction on.
func (c *upgradedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// Close implements net.Conn.
func (c *upgradedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
