package passthrough

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// redactPanics is a handler whose panics are logged without what they hold, where net/http would
// print all of it.
func redactPanics(h http.Handler, log *zap.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p != http.ErrAbortHandler {
				log.Error("BUG: panic while passing a request through", PanicField(p), zap.Stack("stack"))
			}
			panic(http.ErrAbortHandler)
		}()
		h.ServeHTTP(w, r)
	})
}

type exchangeKey struct{}

// withExchange makes the exchange of a replayed connection known to its handler.
func withExchange(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, exchangeKey{}, c.(*replayConn).x)
}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange)
}

// replayHandler runs proxy for as long as both the client and the exchange last.
func replayHandler(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		x := exchangeOf(req.Context())
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(x.ctx, cancel)()
		if x.class.short() && x.in.length != 0 {
			x.late = http.NewResponseController(w)
			// fails on a closed connection, as reading it will
			_ = x.late.SetReadDeadline(time.Now().Add(x.f.Opts.Arrivals.Passed))
		}
		proxy.ServeHTTP(&replayWriter{ResponseWriter: w, x: x}, req.WithContext(ctx))
	})
}

// rewrite puts in place what was decided when the request arrived. Trailers are not forwarded.
func rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In.Context())
	pr.Out.URL, pr.Out.Host, pr.Out.Header, pr.Out.Trailer = x.target, x.target.Host, x.header, nil
}

// noteResponse notes the head of an answer. ReverseProxy writes that of a changed protocol itself,
// and net/http puts a length to it if the request was a POST, which such an answer must not have
// (RFC 9110, section 8.6).
func noteResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	x.answered(resp)
	if x.measures && resp.StatusCode >= http.StatusBadRequest && resp.ContentLength < 0 && len(resp.Trailer) == 0 {
		measure(resp)
	}
	if x.pace != nil && (x.class.short() || ends(resp)) {
		x.pace()
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Header.Del("Content-Length")
		resp.Request = resp.Request.WithContext(resp.Request.Context())
		resp.Request.Method = http.MethodGet
	}
	return nil
}

// measure reads a refusal that does not say how long it is, if it is as short as they are: an
// answer that is at hand as a whole does not keep its handler while its client does not take it.
func measure(resp *http.Response) {
	const most = 4 << 10
	body := make([]byte, most)
	n, err := io.ReadFull(resp.Body, body)
	rest := resp.Body
	read := io.Reader(bytes.NewReader(body[:n]))
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		resp.ContentLength = int64(n)
		resp.Header.Set("Content-Length", strconv.Itoa(n))
	} else {
		read = io.MultiReader(read, rest) // what failed fails again
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{read, rest}
}

// ends reports that an answer is short, whatever the request: a refusal, or an answer of known
// length.
func ends(resp *http.Response) bool {
	return resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode >= http.StatusOK && resp.ContentLength >= 0
}

// exchangeTransport sends each request with the transport of its exchange.
type exchangeTransport struct{}

// RoundTrip implements http.RoundTripper.
func (exchangeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	began := time.Now()
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &clientBody{ReadCloser: req.Body, x: x}
	}
	resp, err := x.transport.RoundTrip(req)
	x.begun()
	if err == nil {
		x.hooks.answeredUpstream(resp.StatusCode)
	}
	if err == nil && x.hooks.Took != nil {
		resp.Body = &timedBody{ReadCloser: resp.Body, x: x, spent: time.Since(began)}
	}
	return resp, err
}

// clientBody notes that the client's body cannot be read to its end, for which upstream is not to
// blame. Once upstream wants no more of it, it is closed for good: ReverseProxy keeps it open until
// it is done with the answer, for the end of which HTTP/2's transport waits until the body has been
// read, which a client that has seen the head of a refusal sends no more of.
type clientBody struct {
	io.ReadCloser
	x        *exchange
	unwanted atomic.Bool
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.unwanted.Load() {
		b.x.broken.Store(true)
	}
	if err == io.EOF && b.x.late != nil {
		_ = b.x.late.SetReadDeadline(time.Time{}) // from here on it is upstream's time
	}
	return n, err
}

// Close implements io.Closer.
func (b *clientBody) Close() error {
	b.unwanted.Store(true)
	if b.x.body != nil {
		_ = b.x.body.Close() // Read returns what is wrong with it
	}
	return b.ReadCloser.Close()
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

// pooledBuffers lends ReverseProxy the buffers that direct answers use.
type pooledBuffers struct{}

// Get implements httputil.BufferPool.
func (pooledBuffers) Get() []byte { return copyBuffers.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (pooledBuffers) Put(b []byte) { copyBuffers.Put((*[32 << 10]byte)(b)) }

// vouches reports that an answer of upstream's shows that it knows the bearer of the request's
// token: it refuses a bad one with 401 before it looks at anything else. What something in between
// may have answered shows nothing.
func vouches(status int) bool {
	switch status {
	case http.StatusSwitchingProtocols, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusUnprocessableEntity:
		return true
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices
}
