package http1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
)

// RequestOf is a request that fasthttp read, for the Forwarder.
func RequestOf(ctx *fasthttp.RequestCtx) passthrough.HTTP1Request { return fastRequest{ctx} }

// fastRequest is a request that fasthttp read and that passes through.
type fastRequest struct{ ctx *fasthttp.RequestCtx }

func (r fastRequest) AnswerWithin(stall time.Duration) apistatus.Responder {
	return fastResponder{ctx: r.ctx, stall: stall}
}

func (r fastRequest) Head() passthrough.RawHead {
	h := &r.ctx.Request.Header
	length := int64(h.ContentLength())
	if length == identityLength {
		length = 0
	}
	return passthrough.RawHead{
		Method: string(h.Method()), Target: string(h.RequestURI()), Proto: string(h.Protocol()), Fields: h.RawHeaders(),
		ContentLength: length, Remote: r.ctx.RemoteAddr(),
	}
}

// identityLength is fasthttp's length of a body that no header announces. A request has none then.
const identityLength = -2

func (r fastRequest) Conn() net.Conn { return r.ctx.Conn() }

func (r fastRequest) Body(length int64) ([]byte, error) {
	if length == 0 {
		return nil, nil
	}
	stream := r.ctx.RequestBodyStream()
	if stream == nil {
		return bytes.Clone(r.ctx.Request.Body()), nil
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(stream, body); err != nil {
		return nil, fmt.Errorf("reading %d bytes of request body: %w", length, err)
	}
	return body, nil
}

// PrefetchBytesLimit is how many bytes of a sized body fasthttp may have read when the handler runs
// (its readBodyWithStreaming).
const PrefetchBytesLimit = 8 << 10

// BodyStart returns the start of a sized body: at least what fasthttp has taken off the connection.
// The rest, and every byte of a chunked body, comes from the hijacked connection.
func (r fastRequest) BodyStart(length int64) ([]byte, error) {
	stream := r.ctx.RequestBodyStream()
	if stream == nil {
		return bytes.Clone(r.ctx.Request.Body()), nil // the server does not stream bodies: this is all of it
	}
	read := make([]byte, min(length, PrefetchBytesLimit))
	if _, err := io.ReadFull(stream, read); err != nil {
		return nil, fmt.Errorf("reading the start of a request body: %w", err)
	}
	return read, nil
}

// Relay copies status and headers; Date is fasthttp's own.
func (r fastRequest) Relay(resp *http.Response) {
	r.ctx.Response.SetStatusCode(resp.StatusCode)
	h := &r.ctx.Response.Header
	for key, values := range resp.Header {
		for _, v := range values {
			h.Add(key, v)
		}
	}
	if r.ctx.IsHead() {
		r.ctx.Response.SkipBody = true
	}
}

func (r fastRequest) RelayBody(body passthrough.RelayedBody, size int64, stall time.Duration) {
	// fasthttp clears after the answer only a deadline that it knows of; the body then moves it along.
	_ = r.ctx.SetWriteDeadline(time.Now().Add(stall))
	r.ctx.Response.ImmediateHeaderFlush = size < 0 // the first byte of the body may be long in coming
	r.ctx.Response.SetBodyStream(writtenBody{body}, int(size))
}

// writtenBody tells fasthttp to use WriteTo, whose pieces are eight times as large as its own.
type writtenBody struct{ passthrough.RelayedBody }

// SupportsBodyWriteTo implements fasthttp.BodyWriterTo.
func (writtenBody) SupportsBodyWriteTo() bool { return true }

func (r fastRequest) Hijack(take func(c net.Conn, in io.Reader), lost func()) {
	hijack(r.ctx, func(c net.Conn) { take(unwrapHijacked(c), c) }, lost)
}

func (r fastRequest) ShareHead() *flowcontrol.LargeHead {
	if h := headConnOf(r.ctx.Conn()); h != nil {
		return h.large.Share()
	}
	return nil
}
