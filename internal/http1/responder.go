package http1

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

// fastResponder answers an HTTP/1.1 request. fasthttp writes the answer when the handler has
// returned.
type fastResponder struct {
	ctx   *fasthttp.RequestCtx
	stall time.Duration // how long the client may take nothing; 0: as long as it likes
}

func (r fastResponder) RequestHeader(key string) string {
	return string(r.ctx.Request.Header.Peek(key))
}

func (r fastResponder) SetHeader(key, value string) { r.ctx.Response.Header.Set(key, value) }

func (r fastResponder) Send(code int, body []byte) {
	r.setPace()
	r.ctx.Response.SetStatusCode(code)
	r.ctx.Response.SetBody(body)
}

func (r fastResponder) Stream(code int, body io.WriterTo, size int64) {
	r.setPace()
	r.ctx.Response.SetStatusCode(code)
	paced := &pacedBody{body: body, stall: r.stall, pinned: flowcontrol.PinnedBytes(size)}
	if flowcontrol.IsLarge(size) {
		paced.conn = clientconn.PacedConnOf(r.ctx.Conn())
		paced.secure = paced.conn != nil && r.ctx.IsTLS()
	}
	r.ctx.Response.SetBodyStream(paced, int(size))
}

func (r fastResponder) HangUp() { r.ctx.SetConnectionClose() }

// setPace lets the client take the answer at no less than a pace, until its next request.
func (r fastResponder) setPace() {
	if p := clientconn.PacedConnOf(r.ctx.Conn()); p != nil && r.stall > 0 {
		_ = p.SetPace(r.stall, 0) // fails on a closed connection, as the answer will
	}
}

// pacedBody writes a body while its client keeps up.
type pacedBody struct {
	body io.WriterTo

	// Of a large body.
	conn   *clientconn.PacedConn // nil: the body is not large, and its client has no more to keep up with
	secure bool                  // conn is below TLS
	stall  time.Duration
	pinned int64 // bytes that it keeps alive
}

// errWrittenOnly says that a body is written with WriteTo alone.
var errWrittenOnly = errors.New("this body is written, not read")

// Read is never called: SupportsBodyWriteTo says so.
func (b *pacedBody) Read([]byte) (int, error) { return 0, errWrittenOnly }

// SupportsBodyWriteTo implements fasthttp.BodyWriterTo.
func (b *pacedBody) SupportsBodyWriteTo() bool { return true }

// Close closes the body if it can be. fasthttp calls it once the answer is written, or cannot be.
func (b *pacedBody) Close() error { return apistatus.CloseBody(b.body) }

// WriteTo writes the body under a pace.
func (b *pacedBody) WriteTo(w io.Writer) (n int64, err error) {
	if b.conn == nil {
		return b.body.WriteTo(w)
	}
	defer func() { // what is left is in fasthttp's buffer, and no longer in the state
		err = errors.Join(err, b.conn.SetPace(b.stall, 0))
	}()
	if err := b.conn.SetPace(b.stall, b.pinned); err != nil {
		return 0, err
	}
	if b.secure {
		w = clientconn.NewRecordWriter(w, b.conn)
	}
	return b.body.WriteTo(w)
}
