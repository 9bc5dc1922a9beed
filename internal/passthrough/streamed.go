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

// A streamed exchange sends its request upstream while the body comes, and its answer to the client
// while that comes: all of HTTP/2, and over HTTP/1.1 what the server cannot answer itself (see
// takeOver). Its answer is the end of the exchange, whatever of the request is still unsent.

// roundTrip sends r upstream; its body is body, unless that is nil. early gets what upstream sends
// ahead of its answer (1xx).
func (x *exchange) roundTrip(r *http.Request, body *clientBody, early func(code int, h http.Header)) (*http.Response,
	error) {
	if x.body = body; body != nil {
		r.Body, r.ContentLength = body, x.in.length
	}
	ctx, answered := withEarlyHeads(r.Context(), early)
	began := time.Now()
	resp, err := x.transport.RoundTrip(r.WithContext(ctx))
	answered()
	x.noteAnswerBegun()
	if err != nil {
		return nil, err
	}
	x.observer.Answered(resp.StatusCode)
	x.noteAnswer(resp)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		responseHeader(resp.Header)
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
			responseHeader(h)
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

// timedBody tells how long upstream took for an answer, however long its client did.
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
		b.x.complete(b.spent)
	}
	return n, err
}

// failureAnswer is the answer for an upstream that gave none, or to a request that could not be
// read to its end.
func (x *exchange) failureAnswer(err error) *apistatus.Answer {
	s := failureStatus(x.class, err)
	switch live := x.ctx.Err() == nil; {
	case live && x.body != nil && x.body.broken.Load():
		s = apistatus.BadRequest("the body of the request ends before it is complete, or its chunks are malformed")
		x.code = int(s.Code)
	case live:
		x.code = int(s.Code)
		x.f.log.Warn("upstream gave no answer", zap.String("method", x.in.method), zap.Stringer("class", x.class),
			zap.Error(err))
	}
	return apistatus.Failure(s)
}

// measure reads a refusal that does not say how long it is, if it is as short as they are: an
// answer that is at hand as a whole does not keep its handler while its client does not take it.
func measure(resp *http.Response) {
	const most = 4 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most)) // ReadFull would take a body that is cut off for a short one
	rest := resp.Body
	read := io.Reader(bytes.NewReader(body))
	switch {
	case err != nil:
		read = io.MultiReader(read, failedReader{err})
	case len(body) < most:
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

// ends reports that an answer is short, whatever the request: a refusal, or an answer of known
// length.
func ends(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode >= http.StatusOK && resp.ContentLength >= 0
}
