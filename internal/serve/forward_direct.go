package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// copyBuffers hold what is on its way from upstream to a client.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// direct sends x straight to upstream and hands the answer to fasthttp, which streams it after the handler returns.
// Meanwhile an epoll tells of a client that leaves, since fasthttp cannot (W-253).
func (f *Forwarder) direct(ctx *fasthttp.RequestCtx, x *exchange) {
	streams := false
	stop := func() {}
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("BUG: panic while passing a request through", panicField(p), zap.Stack("stack"))
			streams, x.code = false, http.StatusBadGateway
			ctx.SetConnectionClose()
			writeStatus(fastResponder{ctx: ctx}, statusBadGateway("the proxy failed; the request may have been carried out"))
		}
		if !streams {
			stop()
			x.end()
		}
	}()
	body, err := arrivingBody(ctx, x)
	if err != nil {
		ctx.SetConnectionClose()
		writeStatus(fastResponder{ctx: ctx}, statusBadRequest("the request body ended early"))
		return
	}
	stop = f.gone.watch(x.conn, x.cancel).stop
	began := time.Now()
	resp, err := x.transport.RoundTrip(x.request(body))
	if err != nil {
		f.failed(ctx, x, err)
		return
	}
	x.answered(resp)
	x.heard.trace.answeredUpstream(x.code)
	responseHeader(resp.Header)
	copyResponseHeader(ctx, resp)
	if bodiless(x.in.method, resp) {
		_ = resp.Body.Close()
		return
	}
	streams = true
	f.stream(ctx, resp, &answerBody{
		x: x, upstream: resp.Body, stop: stop, stall: f.opts.StallTimeout, spent: time.Since(began), left: resp.ContentLength,
	})
}

// stream makes b the body of the answer. With a chunked answer the head goes out before the first byte of the body: it
// may be long in coming.
func (f *Forwarder) stream(ctx *fasthttp.RequestCtx, resp *http.Response, b *answerBody) {
	// fasthttp clears after the answer only a deadline that it knows of; answerBody then moves it along.
	_ = ctx.SetWriteDeadline(time.Now().Add(b.stall))
	ctx.Response.ImmediateHeaderFlush = resp.ContentLength < 0
	ctx.Response.SetBodyStream(b, int(resp.ContentLength))
}

// failed answers for an upstream that did not. If the client left there is nobody to answer.
func (f *Forwarder) failed(ctx *fasthttp.RequestCtx, x *exchange, err error) {
	s := failureStatus(x.class, err)
	if x.ctx.Err() != nil {
		ctx.SetConnectionClose()
	} else {
		x.code = int(s.Code)
		f.log.Warn("upstream gave no answer", zap.String("method", x.in.method), zap.Stringer("class", x.class), zap.Error(err))
	}
	writeStatus(fastResponder{ctx: ctx}, s)
}

// request is what goes upstream. GetBody lets the transport repeat it on a fresh connection if the pooled one turns
// out to be dead before a byte was written.
func (x *exchange) request(body []byte) *http.Request {
	r := &http.Request{
		Method: x.in.method, URL: x.target, Header: x.header, Host: x.target.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
	}
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r.WithContext(x.ctx)
}

// arrivingBody is ownedBody, while which the request is still on its way.
func arrivingBody(ctx *fasthttp.RequestCtx, x *exchange) ([]byte, error) {
	if p := pacer(x.conn); p != nil && x.in.length > 0 {
		p.enter(arriving)
		defer p.enter(busy)
	}
	return ownedBody(ctx, x.in.length)
}

// ownedBody copies the request's body of length bytes.
func ownedBody(ctx *fasthttp.RequestCtx, length int64) ([]byte, error) {
	if length == 0 {
		return nil, nil
	}
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return bytes.Clone(ctx.Request.Body()), nil
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(stream, body); err != nil {
		return nil, fmt.Errorf("reading %d bytes of request body: %w", length, err)
	}
	return body, nil
}

// bodiless reports whether the answer has no body, whatever its headers say.
func bodiless(method string, resp *http.Response) bool {
	return method == http.MethodHead || resp.ContentLength == 0 ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// copyResponseHeader copies status and headers; Date is fasthttp's own.
func copyResponseHeader(ctx *fasthttp.RequestCtx, resp *http.Response) {
	ctx.Response.SetStatusCode(resp.StatusCode)
	h := &ctx.Response.Header
	for key, values := range resp.Header {
		for _, v := range values {
			h.Add(key, v)
		}
	}
	if ctx.IsHead() {
		ctx.Response.SkipBody = true
	}
}

// answerBody is an answer's body on its way through. Reading it moves the client's write deadline along: the client must
// take something now and then, but the answer as a whole may last. Close ends the exchange; fasthttp calls it once the
// answer is written, or cannot be.
type answerBody struct {
	x        *exchange
	upstream io.ReadCloser
	stop     func()
	stall    time.Duration
	spent    time.Duration // waiting for upstream
	left     int64         // of the answer's length; negative: not known
	closes   sync.Once
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := b.upstream.Read(p)
	b.spent += time.Since(began)
	b.left -= int64(n)
	if err == io.EOF || b.left == 0 { // who knows the length reads no further
		b.x.complete(b.spent)
	}
	_ = b.x.conn.SetWriteDeadline(time.Now().Add(b.stall))
	return n, err
}

// SupportsBodyWriteTo tells fasthttp to use WriteTo, whose pieces are eight times as large as its own.
func (b *answerBody) SupportsBodyWriteTo() bool { return true }

// WriteTo implements io.WriterTo.
func (b *answerBody) WriteTo(w io.Writer) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	var written int64
	for {
		n, err := b.Read(buf[:])
		if n > 0 {
			m, werr := w.Write(buf[:n])
			written += int64(m)
			if werr != nil {
				return written, werr
			}
		}
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	var err error
	b.closes.Do(func() {
		b.stop()
		b.x.cancel() // a body that was not read to its end is not worth draining
		err = b.upstream.Close()
		b.x.end()
	})
	return err
}
