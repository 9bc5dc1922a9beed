package passthrough

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
)

// forwardDirect owns the body of x, sends x upstream in its turn, and answers it. It returns the
// answer if x does not go.
func (x *exchange) forwardDirect(r HTTP1Request) *apistatus.Answer {
	var body []byte
	var err error
	if x.in.body == bodyOwned {
		x.whileArriving(func() { body, err = r.Body(x.in.contentLength) })
	}
	if err != nil {
		return x.earlyEndAnswer()
	}
	if refusal := x.awaitPermit(); refusal != nil {
		return refusal
	}
	x.answerDirect(r, body)
	return nil
}

// whileArriving calls f while the request counts as one that still arrives: another connection may
// take the place of its own.
func (x *exchange) whileArriving(f func()) {
	p := clientconn.PacedConnOf(x.conn)
	p.SetState(clientconn.StateNew)
	defer p.SetState(clientconn.StateActive)
	f()
}

// answerDirect sends x straight to upstream and hands the answer to the server, which streams it
// after the handler returns. Meanwhile an epoll tells of a client that leaves, because the server
// may not (W-253).
func (x *exchange) answerDirect(r HTTP1Request, body []byte) {
	streams := false
	defer func() {
		if p := recover(); p != nil {
			x.f.log.Error("BUG: panic while passing a request through", PanicField(p), zap.Stack("stack"))
			streams, x.code = false, http.StatusBadGateway
			a := apistatus.Failure(apistatus.BadGateway("the proxy failed; the request may have been carried out"))
			a.HangUp = true
			a.Write(r.AnswerWithin(0))
		}
		if !streams {
			x.end()
		}
	}()
	x.watchClient()
	began := time.Now()
	resp, err := x.transport.RoundTrip(x.request(body))
	if err != nil {
		a := x.failureAnswer(err)
		a.HangUp = x.ctx.Err() != nil // the client has left
		a.Write(r.AnswerWithin(0))
		return
	}
	x.noteHead(resp)
	x.observer.Answered(x.code)
	dropHopByHop(resp.Header)
	r.Relay(resp)
	if isBodiless(x.in.method, resp) {
		_ = resp.Body.Close()
		return
	}
	streams = true
	stall := x.f.opts.StallTimeout
	r.RelayBody(&answerBody{
		x: x, upstream: resp.Body, stall: stall, spent: time.Since(began), left: resp.ContentLength,
	}, resp.ContentLength, stall)
}

// request is what goes upstream, with an owned body. GetBody lets the transport repeat it on a
// fresh connection if the pooled one turns out to be dead before a byte was written.
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

// isBodiless reports whether the answer has no body, whatever its headers say.
func isBodiless(method string, resp *http.Response) bool {
	return method == http.MethodHead || resp.ContentLength == 0 ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// answerBody is an answer's body on its way through. Each Read extends the client's write deadline:
// the client must take something now and then, but the answer as a whole may last. Close ends the
// exchange; the server calls it once the answer is written, or cannot be.
type answerBody struct {
	x        *exchange
	upstream io.ReadCloser
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
	if err == io.EOF || b.left == 0 { // a reader that knows the length reads no further
		b.x.reportTime(b.spent)
	}
	_ = b.x.conn.SetWriteDeadline(time.Now().Add(b.stall))
	return n, err
}

// WriteTo implements io.WriterTo.
func (b *answerBody) WriteTo(w io.Writer) (int64, error) { return copyAll(w, b) }

// Close implements io.Closer.
func (b *answerBody) Close() error {
	var err error
	b.closes.Do(func() {
		b.x.cancel() // a body that was not read to its end is not worth draining
		err = b.upstream.Close()
		b.x.end()
	})
	return err
}
