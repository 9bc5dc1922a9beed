package passthrough

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/apistatus"
)

// A streamed exchange sends its request upstream while the body arrives, and its answer to the
// client while that arrives: all of HTTP/2, and what takeOver has of HTTP/1.1. Its answer is the
// end of the exchange, whatever of the request is still unsent.

// limitArrival sets the time by which the streamed body must have arrived, if the request has one
// answer or upgrades its connection. An upgrade begins behind the body, and on the connections that
// it takes upstream sends not even its refusal until then.
func (x *exchange) limitArrival() {
	if x.in.class.isShort() || x.in.upgrade != "" {
		// It fails on a connection or stream that is closed, as reading it will.
		_ = x.body.setDeadline(time.Now().Add(x.f.opts.Arrivals.Passed))
	}
}

// roundTrip sends r upstream, with the streamed body of x, if it has one. early gets what upstream
// sends ahead of its answer (1xx).
func (x *exchange) roundTrip(r *http.Request, early func(code int, h http.Header)) (*http.Response, error) {
	if x.body != nil {
		r.Body, r.ContentLength = x.body, x.in.contentLength
	}
	ctx, answered := withEarlyHeads(r.Context(), early)
	began := time.Now()
	resp, err := x.transport.RoundTrip(r.WithContext(ctx))
	answered()
	if !x.in.class.isShort() {
		x.permit.Release()
	}
	x.observer.AnswerBegan()
	if err != nil {
		return nil, err
	}
	x.observer.Answered(resp.StatusCode)
	x.noteHead(resp)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		dropHopByHop(resp.Header)
		resp.Body = &timedBody{ReadCloser: resp.Body, x: x, spent: time.Since(began)}
	}
	return resp, nil
}

// withEarlyHeads calls early for what upstream sends ahead of its answer, until answered is called.
func withEarlyHeads(ctx context.Context, early func(code int, h http.Header)) (with context.Context, answered func()) {
	var mu sync.Mutex
	over := false
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		mu.Lock()
		defer mu.Unlock()
		if !over && code != http.StatusContinue { // which the client's own server has sent
			h := http.Header(header)
			dropHopByHop(h)
			early(code, h)
		}
		return nil
	}}
	return httptrace.WithClientTrace(ctx, trace), func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// timedBody measures how long upstream took for an answer, without the time that its client took.
type timedBody struct {
	io.ReadCloser
	x     *exchange
	spent time.Duration // waiting for upstream
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.spent += time.Since(began)
	if err == io.EOF {
		b.x.reportTime(b.spent)
	}
	return n, err
}

// failureAnswer is the answer for an upstream that gave none, or to a request that could not be
// read to its end.
func (x *exchange) failureAnswer(err error) *apistatus.Answer {
	s := failureStatus(x.in.class, err)
	switch live := x.ctx.Err() == nil; {
	case live && x.body != nil && x.body.broken.Load():
		s = apistatus.BadRequest("the body of the request ends before it is complete, or its chunks are malformed")
		x.code = int(s.Code)
	case live:
		x.code = int(s.Code)
		x.f.log.Warn("upstream gave no answer", zap.String("method", x.in.method), zap.Stringer("class", x.in.class),
			zap.Error(err))
	}
	return apistatus.Failure(s)
}

// shortRefusalBytes is how large a refusal is at most that is read as a whole.
const shortRefusalBytes = 4 << 10

// measureRefusal reads a refusal of unknown length, and gives it a length if it is short. An answer
// of known length does not keep its handler while its client takes nothing.
func measureRefusal(resp *http.Response) {
	// ReadFull would take a body that is cut off for a short one.
	body, err := io.ReadAll(io.LimitReader(resp.Body, shortRefusalBytes))
	rest := resp.Body
	read := io.Reader(bytes.NewReader(body))
	switch {
	case err != nil:
		read = io.MultiReader(read, failedReader{err})
	case len(body) < shortRefusalBytes:
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	default:
		read = io.MultiReader(read, rest)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{read, rest}
}

// failedReader is the rest of a body that could not be read.
type failedReader struct{ err error }

// Read implements io.Reader.
func (r failedReader) Read([]byte) (int, error) { return 0, r.err }

// endsSoon reports that an answer is short, whatever the request: a refusal, or an answer of known
// length.
func endsSoon(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode >= http.StatusOK && resp.ContentLength >= 0
}

// copyBuffers hold bytes on their way between upstream and a client.
var copyBuffers = sync.Pool{New: func() any { return new([copyBufferBytes]byte) }}

const copyBufferBytes = 32 << 10

// copyAll copies to the end of from.
func copyAll(to io.Writer, from io.Reader) (int64, error) {
	buffer := copyBuffers.Get().(*[copyBufferBytes]byte)
	defer copyBuffers.Put(buffer)
	// Hides ReaderFrom and WriterTo, which may use a buffer of their own.
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer[:])
}
