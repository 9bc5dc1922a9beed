package watch

import (
	"net"
	"net/http"
	"time"

	"spillway/internal/clientconn"
)

// sink is where the bytes of a stream go: a connection that it has to itself, or a stream of an
// HTTP/2 connection. One goroutine uses it, but for cut.
type sink interface {
	// begin sends the head of the answer, at once: the first event may be long in coming (W-102).
	begin() error
	// Write sends frames, at once and all of them. It returns clientconn.ErrStalled, or why its
	// pin was condemned, once the client falls below the pace; the stream is cut then.
	Write(b []byte) (int, error)
	// Pace demands progress of the client from now on, which keeps so many bytes of old state
	// alive; 0: none.
	Pace(pinned int64)
	// wait is how long a Write has waited for the client; nil: that is not known.
	wait() *clientconn.ClientWait
	// cut ends the stream so that the client sees that it has no end. A Write that waits returns.
	// Any goroutine may call it.
	cut()
	// port is where a writer may send from now on, instead of Write. It reports false if there is
	// no sending without waiting.
	port(w *writer) (port, bool)
	// end is called once the stream has ended: it ends the answer, or the whole connection. draining
	// says that the server takes no more requests.
	end(reason EndReason, draining bool)
	// client is the client's address, for the log.
	client() string
	// protocol is the client's, for operators.
	protocol() string
}

// ConnSink is an HTTP/1.1 connection that a stream has to itself.
type ConnSink struct {
	Conn         net.Conn
	Head         []byte // until it is sent; all but its end
	StallTimeout time.Duration
	// Closing says that the connection is closed after this answer, because the client wants that, or
	// has sent more behind its request.
	Closing bool
	Watched *clientconn.WatchedConn // reports the client's departure
	// Ended follows the end of the stream, before another request may be read.
	Ended func(reason EndReason, draining bool)
}

func (c *ConnSink) end(reason EndReason, draining bool) { c.Ended(reason, draining) }

func (c *ConnSink) begin() error {
	head := c.Head
	if c.Head = nil; c.Closing {
		head = append(head, "Connection: close\r\n"...)
	}
	_, err := c.Conn.Write(append(head, "\r\n"...))
	return err
}

// Write implements sink.
func (c *ConnSink) Write(b []byte) (int, error) {
	if below := clientconn.PacedConnOf(c.Conn); below != nil && below != c.Conn && len(b) > clientconn.RecordBytes {
		return clientconn.NewRecordWriter(c.Conn, below).Write(b)
	}
	return c.Conn.Write(b)
}

// Pace implements sink.
func (c *ConnSink) Pace(pinned int64) { setPace(c.Conn, c.StallTimeout, pinned) }

func (c *ConnSink) wait() *clientconn.ClientWait { return clientconn.PacedConnOf(c.Conn).Wait() }

func (c *ConnSink) cut() { cutConn(c.Conn) }

// setPace demands progress of the client of a connection, as sink.Pace.
func setPace(conn net.Conn, stallTimeout time.Duration, pinned int64) {
	if p := clientconn.PacedConnOf(conn); p != nil {
		_ = p.SetPace(stallTimeout, pinned) // fails on a closed connection, as the next write does
	}
}

// cutConn cuts a connection below TLS, which only the deliverer uses.
func cutConn(conn net.Conn) {
	if p := clientconn.PacedConnOf(conn); p != nil {
		p.Cut()
	}
}

func (c *ConnSink) port(w *writer) (port, bool) {
	out := w.openSender(c)
	if out == nil {
		return port{}, false
	}
	p, below := port{out: out}, clientconn.PacedConnOf(c.Conn)
	if c.Conn != below {
		p.secure = &securePort{RecordWriter: clientconn.NewRecordWriter(c.Conn, below), sealed: &w.sealed}
	}
	if below != nil {
		below.StopPacing()
	}
	return p, true
}

func (c *ConnSink) protocol() string { return "HTTP/1.1" }

func (c *ConnSink) client() string { return c.Conn.RemoteAddr().String() }

// Head is the head of a watch's answer as HTTP/1.1 writes it, but for its end, which depends on
// whether the connection stays open.
func Head(st *Stream, headers HeadersFunc, strict string) []byte {
	head := make([]byte, 0, 256)
	head = append(head, "HTTP/1.1 200 OK\r\n"...)
	SetHeaders(st, headers, func(key, value string) {
		head = append(append(append(append(head, key...), ": "...), value...), "\r\n"...)
	})
	if strict != "" {
		head = append(append(append(head, clientconn.StrictTransportSecurityHeader+": "...), strict...), "\r\n"...)
	}
	head = append(head, "Date: "...)
	head = time.Now().UTC().AppendFormat(head, http.TimeFormat)
	return append(head, "\r\nTransfer-Encoding: chunked\r\n"...)
}

// HeadersFunc sets headers of an answer: its Audit-Id (W-3), and those that describe the
// resource.
type HeadersFunc func(set func(key, value string))

// SetHeaders sets the headers of a watch's answer, sent before the first event is known (W-102).
func SetHeaders(st *Stream, headers HeadersFunc, set func(key, value string)) {
	set("Cache-Control", "no-cache, private")
	set("Content-Type", st.encoding.StreamMediaType())
	headers(set)
	if st.encoding.Gzip {
		set("Content-Encoding", "gzip")
		set("Vary", "Accept-Encoding")
	}
}

// Code is the status code of the answer: 101 if it becomes a WebSocket (W-119).
func (s *Stream) Code() int {
	if s.encoding.WebSocket {
		return http.StatusSwitchingProtocols
	}
	return http.StatusOK
}
