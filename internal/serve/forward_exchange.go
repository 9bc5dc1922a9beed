package serve

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// exchange is one request on its way through and its answer. It is counted and can be aborted from begin to end.
type exchange struct {
	f         *Forwarder
	in        *inbound
	class     class
	target    *url.URL
	header    http.Header // what upstream gets
	transport http.RoundTripper
	conn      net.Conn // the client's
	ctx       context.Context
	cancel    context.CancelFunc

	took    func(time.Duration) // wants to know how long upstream took; may be nil
	code    int                 // of the answer; 0: none yet. Owned by whoever answers
	waiting atomic.Bool         // replayed, but not yet with the net/http server: nobody but abort would end it
	ends    sync.Once
}

// begin counts the request in. It returns nil after it has answered a request that there is no room for.
func (f *Forwarder) begin(ctx *fasthttp.RequestCtx, in *inbound) *exchange {
	x := &exchange{f: f, in: in, class: in.class(), conn: ctx.Conn()}
	x.ctx, x.cancel = context.WithCancel(f.base)
	admitted, closing := f.admit(x)
	switch {
	case closing:
		x.cancel()
		f.metrics.answered(x.class, http.StatusServiceUnavailable)
		ctx.SetConnectionClose()
		writeStatus(fastResponder{ctx: ctx}, statusShuttingDown())
		return nil
	case !admitted:
		x.cancel()
		f.metrics.answered(x.class, http.StatusTooManyRequests)
		writeTooManyRequests(fastResponder{ctx: ctx}, 1)
		return nil
	}
	f.metrics.inFlight.WithLabelValues(x.class.String()).Inc()
	return x
}

func (f *Forwarder) admit(x *exchange) (admitted, closing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, most := &f.mu.long, f.opts.MaxLong
	if x.class.short() {
		n, most = &f.mu.short, f.opts.MaxShort
	}
	if f.mu.closing || (most > 0 && *n >= most) {
		return false, f.mu.closing
	}
	*n++
	f.mu.exchanges[x] = struct{}{}
	f.active.Add(1)
	return true, false
}

// complete tells whoever wants to know it how long upstream took for the whole answer.
func (x *exchange) complete(spent time.Duration) {
	if x.took != nil && x.code == http.StatusOK {
		x.took(spent)
		x.took = nil
	}
}

// end counts the request out. Only the first call does anything.
func (x *exchange) end() {
	x.ends.Do(func() {
		x.cancel()
		if x.code == 0 {
			x.code = codeClientGone
		}
		f := x.f
		f.metrics.inFlight.WithLabelValues(x.class.String()).Dec()
		f.metrics.answered(x.class, x.code)
		f.mu.Lock()
		delete(f.mu.exchanges, x)
		if x.class.short() {
			f.mu.short--
		} else {
			f.mu.long--
		}
		f.mu.Unlock()
		f.active.Done()
	})
}

// abort cuts the request off: upstream is cancelled and the client's connection closed, which makes whoever serves the
// exchange end it.
func (x *exchange) abort() {
	x.cancel()
	_ = x.conn.Close()
	if x.waiting.CompareAndSwap(true, false) {
		x.end()
	}
}
