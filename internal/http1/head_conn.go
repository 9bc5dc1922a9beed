package http1

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
	"spillway/internal/tlsconn"

	"github.com/valyala/fasthttp"
)

// headConn is what fasthttp reads an HTTP/1.1 connection through. It remembers what it has read of
// a request's head, since fasthttp gives up a head that does not fit into its buffer, and with it
// those bytes. The connection then goes on elsewhere (serveLarge), and this one is closed without
// it.
//
// What is remembered is right only if fasthttp's buffer was empty when the head began; otherwise it
// is shorter than that buffer when that is full, so that whole tells the one from the other.
type headConn struct {
	net.Conn
	prefix    []byte                 // read before, to be read first
	large     *flowcontrol.LargeHead // nil: the head is an ordinary one
	headBytes *[]byte                // of the head; nil: nothing yet, or nothing is remembered
	recording bool                   // a head is on its way
	detached  bool                   // the connection has another owner

	answeredCtx   *fasthttp.RequestCtx // nil: none is
	lingerOnClose atomic.Bool          // the client may still be sending when it is closed
}

// tlsHeadConn is a headConn over TLS, which fasthttp asks for it.
type tlsHeadConn struct {
	*headConn
	secure *tlsconn.SecureConn
}

func (c tlsHeadConn) Handshake() error                     { return c.secure.Handshake() }
func (c tlsHeadConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// headBuffers are what heads were remembered in.
var headBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// newHeadConn wraps a connection. prefix is what was read of it before.
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

// setRecording remembers what comes from now on, or forgets it.
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

// Of a head, fasthttp keeps what it was read into for the next one of its connection: some 70 bytes
// for a field, and several times the bytes of its request line. More than these are not kept.
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

// detach leaves the connection to others: what is done to this one from now on does nothing.
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

// SetDeadline implements net.Conn, as the next two.
func (c *headConn) SetDeadline(t time.Time) error {
	return c.deadline(func() error { return c.Conn.SetDeadline(t) })
}

func (c *headConn) SetReadDeadline(t time.Time) error {
	return c.deadline(func() error { return c.Conn.SetReadDeadline(t) })
}

func (c *headConn) SetWriteDeadline(t time.Time) error {
	return c.deadline(func() error { return c.Conn.SetWriteDeadline(t) })
}

func (c *headConn) deadline(set func() error) error {
	if c.detached {
		return net.ErrClosed
	}
	return set()
}

// headEnd is where the head that b begins with may end: not behind where fasthttp sees its end. -1:
// it is not there.
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
