package http1

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/tlsconn"
)

// headConn is what fasthttp reads an HTTP/1.1 connection through. It records what it has read of a
// request's head, because fasthttp gives up a head that does not fit into its buffer, and with it
// those bytes. serveLarge then serves the connection, and this wrapper is closed without it.
//
// What is recorded is the head's beginning only if fasthttp's buffer was empty when the head began.
// Otherwise it is shorter than that buffer when that is full, which fullBuffer checks.
type headConn struct {
	net.Conn
	prefix    []byte                 // what Read returns first: it was read of the connection earlier
	large     *flowcontrol.LargeHead // nil: the head is an ordinary one
	headBytes *[]byte                // recorded; nil: nothing is
	recording bool                   // a head is on its way
	detached  bool                   // the connection has another owner

	answeredCtx   *fasthttp.RequestCtx // the request that is being answered; nil: none is
	lingerOnClose atomic.Bool          // the client may still be sending when it is closed
}

// tlsHeadConn is a headConn over TLS, with the methods by which fasthttp finds TLS.
type tlsHeadConn struct {
	*headConn
	secure *tlsconn.SecureConn
}

func (c tlsHeadConn) Handshake() error                     { return c.secure.Handshake() }
func (c tlsHeadConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// headBuffers are those in which heads were recorded.
var headBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// newHeadConn wraps a connection. prefix is what was read of it already.
func newHeadConn(c net.Conn, prefix []byte, large *flowcontrol.LargeHead) net.Conn {
	h := &headConn{Conn: c, prefix: prefix, large: large, recording: large == nil}
	if secure, ok := c.(*tlsconn.SecureConn); ok {
		return tlsHeadConn{h, secure}
	}
	return h
}

// headConnOf is the headConn that c is, or nil.
func headConnOf(c net.Conn) *headConn {
	switch v := c.(type) {
	case *headConn:
		return v
	case tlsHeadConn:
		return v.headConn
	}
	return nil
}

// unwrapHeadConn is the connection without what reads heads. Nothing of it may be left to be read
// there.
func unwrapHeadConn(c net.Conn) net.Conn {
	if h := headConnOf(c); h != nil {
		return h.Conn
	}
	return c
}

// NetConn is the connection below.
func (c *headConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *headConn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
			c.prefix = nil
		}
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if c.recording && n > 0 {
		c.recordHead(p[:n])
	}
	return n, err
}

func (c *headConn) recordHead(b []byte) {
	if c.headBytes == nil {
		c.headBytes = headBuffers.Get().(*[]byte)
	}
	*c.headBytes = append(*c.headBytes, b[:min(len(b), OrdinaryHeadBytes+1-len(*c.headBytes))]...)
}

// setRecording forgets what was recorded, and records what comes from now on if on says so.
func (c *headConn) setRecording(on bool) {
	c.recording = on && c.large == nil
	if c.headBytes != nil {
		if cap(*c.headBytes) <= 4096 {
			*c.headBytes = (*c.headBytes)[:0]
			headBuffers.Put(c.headBytes)
		}
		c.headBytes = nil
	}
}

// fasthttp keeps what a head was read into for the next head of the connection: some 70 bytes for a
// field, and several times the bytes of the request line. A head beyond these limits is not kept.
const (
	keptHeadBytes  = 2 << 10
	keptHeadFields = 64
)

// beginRequest notes what fasthttp keeps the head of a request in.
func (c *headConn) beginRequest(ctx *fasthttp.RequestCtx) {
	c.setRecording(false)
	c.answeredCtx = ctx
}

// endRequest follows the answer, and lets go of what a long head was read into.
func (c *headConn) endRequest() {
	c.setRecording(true)
	c.lingerOnClose.Store(false)
	ctx := c.answeredCtx
	if ctx == nil {
		return
	}
	c.answeredCtx = nil
	h := &ctx.Request.Header
	fields := h.RawHeaders()
	if len(fields)+len(h.RequestURI()) > keptHeadBytes || bytes.Count(fields, []byte{'\n'}) > keptHeadFields {
		ctx.Request.Reset()
		ctx.Request = fasthttp.Request{}
	}
}

// fullBuffer is what fasthttp's full buffer holds of a head, or nil if that is not known.
func (c *headConn) fullBuffer() []byte {
	if c.headBytes == nil || len(*c.headBytes) != OrdinaryHeadBytes {
		return nil
	}
	return *c.headBytes
}

// detach leaves the connection to another owner: writes, deadlines and Close do nothing from now
// on.
func (c *headConn) detach() { c.detached = true }

// Write implements net.Conn.
func (c *headConn) Write(b []byte) (int, error) {
	if c.detached {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *headConn) Close() error {
	switch {
	case c.detached:
		return nil
	case c.lingerOnClose.Swap(false):
		clientconn.Linger(c.Conn, c.Conn)
		return nil
	}
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *headConn) SetDeadline(t time.Time) error { return c.setDeadline(c.Conn.SetDeadline, t) }

// SetReadDeadline implements net.Conn.
func (c *headConn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(c.Conn.SetReadDeadline, t)
}

// SetWriteDeadline implements net.Conn.
func (c *headConn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(c.Conn.SetWriteDeadline, t)
}

func (c *headConn) setDeadline(set func(time.Time) error, t time.Time) error {
	if c.detached {
		return net.ErrClosed
	}
	return set(t)
}

// headEnd is where the head that b begins with may end: not behind where fasthttp sees its end. It
// looks from an index on, also a negative one. -1: the end is not there.
func headEnd(b []byte, from int) int {
	for at := max(from, 0); ; {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			return -1
		}
		at += n + 1
		rest := b[at:]
		if len(rest) > 0 && rest[0] == '\n' {
			return at + 1
		}
		if len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n' {
			return at + 2
		}
	}
}

// headListener has fasthttp read connections through a headConn.
type headListener struct{ net.Listener }

// Accept implements net.Listener.
func (l headListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newHeadConn(c, nil, nil), nil
}
