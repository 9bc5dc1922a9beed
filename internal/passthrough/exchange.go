package passthrough

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
)

// exchange is one request on its way through and its answer. It is counted and can be aborted from
// begin to end.
type exchange struct {
	f         *Forwarder
	in        *Inbound
	class     class
	target    *url.URL
	header    http.Header // what upstream gets
	transport http.RoundTripper
	lent      bool      // the transport's credentials are not the client's
	conn      net.Conn  // the client's, if it is this exchange's alone
	body      io.Closer // the client's, if reads of it end when it is closed; nil: it is left open
	sever     func()    // breaks the answer off, so that its server ends it. Any goroutine may call it
	ctx       context.Context
	cancel    context.CancelFunc

	seat    flowcontrol.Pass // of the requests under way; a watch has it until its answer begins
	lasting flowcontrol.Pass // of what lasts
	hooks   AnswerHooks
	code    int         // of the answer; 0: none yet. Owned by the goroutine that answers
	waiting atomic.Bool // replayed, but not yet with the net/http server: abort alone would end it
	broken  atomic.Bool // replayed, and its body could not be read to its end
	// of a body that must have arrived by a time; nil: it may last. Owned by the reader of the body
	late  *http.ResponseController
	ends  sync.Once
	owned int64                  // what is reserved for the body, in bytes
	large *flowcontrol.LargeHead // the request's head; nil: it is not large

	measures bool // a refusal is read as a whole, if it is short

	known func() // called when upstream knows the sender of the request; nil: not needed
	pace  func() // called when the answer is short: demands progress of the client; nil: that is demanded already
}

// clientControl is how the client of an exchange is reached, whatever the way of its answer.
type clientControl struct {
	sever   func() // breaks its answer off
	departs flowcontrol.Departs
}

// begin decides what goes upstream of a request, in one place for all ways there, waits for its
// turn, and counts it in. It returns nil after it has answered a request that does not go.
func (f *Forwarder) begin(w apistatus.Responder, in *Inbound, b Bearer, to clientControl) *exchange {
	target, err := targetURL(f.Opts.Base, in.target)
	if err != nil {
		apistatus.WriteMalformed(w, "malformed request target")
		return nil
	}
	if why := unsendable(in); why != "" {
		f.metrics.answered(in.class(), http.StatusBadRequest)
		apistatus.WriteMalformed(w, why)
		return nil
	}
	if s := f.refusal(in, b); s != nil {
		f.metrics.answered(in.class(), int(s.Code))
		if !in.class().short() {
			w.HangUp() // as the answer would have (D-11)
		}
		apistatus.Write(w, s)
		return nil
	}
	x := &exchange{f: f, in: in, class: in.class(), target: target, lent: b.lends(in.Header), sever: to.sever}
	x.reserveBody()
	x.header, x.transport = outgoingHeader(in.Header, f.claims, in.peer, in.upgrade), f.transport(b, in, x.class)
	if b.As != nil {
		withoutIdentity(x.header)
	}
	if x.lent {
		withoutPlace(x.header)
	}
	x.ctx, x.cancel = context.WithCancel(f.base)
	if !f.limited(w, x, b.Flow, to.departs) || !f.enter(w, x) {
		x.release()
		return nil
	}
	if x.transport == nil {
		x.code = http.StatusForbidden
		if !x.class.short() {
			w.HangUp()
		}
		apistatus.Write(w, apistatus.Forbidden(
			"this proxy has no identity of its own to act with: send your own Authorization"))
		x.end()
		return nil
	}
	return x
}

// reserveBody reserves room for the body, or has it sent on while it comes.
func (x *exchange) reserveBody() {
	if x.in.length <= 0 || !x.in.repeatable(x.class) {
		return
	}
	if x.in.passed = !x.f.Opts.Limiter.ReserveBody(x.in.length); !x.in.passed {
		x.owned = x.in.length
	}
}

// limited waits until x may go within the limits, or answers that it may not.
func (f *Forwarder) limited(w apistatus.Responder, x *exchange, flow flowcontrol.Flow, d flowcontrol.Departs) bool {
	refusal := f.admit(x, flow, d)
	if refusal == nil {
		return true
	}
	code := http.StatusTooManyRequests
	switch {
	case f.Opts.Limiter.Closed():
		code = http.StatusServiceUnavailable
	case refusal.Reason == flowcontrol.ReasonCancelled:
		code = codeClientGone
		w.HangUp() // the client does not read what is answered now
	}
	f.metrics.answered(x.class, code)
	apistatus.WriteLimited(w, apistatus.StatusFormat{}, f.Opts.Limiter.Closed(), refusal.RetryAfter)
	return false
}

// admit admits x as kube-apiserver's flow control would (WithPriorityAndFairness): a watch has a
// seat until its answer begins, and other lasting requests have none. They count as lasting. Probes
// are exempt.
func (f *Forwarder) admit(x *exchange, flow flowcontrol.Flow, d flowcontrol.Departs) *flowcontrol.Refusal {
	if x.in.probes() {
		return nil
	}
	refusal := f.Opts.Limiter.AllowRate(flow)
	if refusal == nil && !x.class.short() {
		x.lasting, refusal = f.Opts.Limiter.AdmitLasting(flow)
	}
	if refusal == nil && (x.class.short() || x.class == classStream && watching(x.in.path, x.in.query)) {
		x.seat, refusal = f.Opts.Limiter.AdmitPassThrough(d, flow)
	}
	return refusal
}

// enter counts x in, unless the forwarder is closing, which it answers.
func (f *Forwarder) enter(w apistatus.Responder, x *exchange) bool {
	if !f.register(x) {
		f.metrics.answered(x.class, http.StatusServiceUnavailable)
		w.HangUp()
		apistatus.Write(w, apistatus.ShuttingDown())
		return false
	}
	f.metrics.inFlight.WithLabelValues(x.class.String()).Inc()
	return true
}

func (f *Forwarder) register(x *exchange) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closing {
		return false
	}
	f.mu.exchanges[x] = struct{}{}
	f.active.Add(1)
	return true
}

// release gives back what x holds.
func (x *exchange) release() {
	x.cancel()
	x.seat.Release()
	x.lasting.Release()
	x.f.Opts.Limiter.ReleaseBody(x.owned)
	x.owned = 0
}

// AnswerHooks observe an answer on its way through. Its functions may be nil.
type AnswerHooks struct {
	// Head is called when upstream's answer has begun, or will not come, unless Forward returns then
	// anyway. It may be called more than once.
	Head func()
	// Took receives once how long upstream took for a whole short answer, if one came.
	Took func(time.Duration)
	// Trace follows the answer; nil: it is not traced.
	Trace AnswerTrace
}

// AnswerTrace is the trace of a request that passes through.
type AnswerTrace interface {
	// Noting is w, whose answer ends the trace.
	Noting(w apistatus.Responder) apistatus.Responder
	// Propagate puts the trace into the headers that upstream gets.
	Propagate(header http.Header)
	// AnsweredUpstream ends the trace by the code of upstream's answer.
	AnsweredUpstream(code int)
}

// noting is w, whose answer ends the trace, if there is one.
func (h AnswerHooks) noting(w apistatus.Responder) apistatus.Responder {
	if h.Trace == nil {
		return w
	}
	return h.Trace.Noting(w)
}

// answeredUpstream ends the trace, if there is one.
func (h AnswerHooks) answeredUpstream(code int) {
	if h.Trace != nil {
		h.Trace.AnsweredUpstream(code)
	}
}

// setHooks has h observe the answer, and propagates its trace upstream.
func (x *exchange) setHooks(h AnswerHooks) {
	x.hooks = h
	if h.Trace != nil {
		h.Trace.Propagate(x.header)
	}
}

// answered notes the head of upstream's answer, and maps back what leads to upstream's addresses. A
// cookie that a front hands out is worth what the credentials of its request were: the client keeps
// none that was issued to lent credentials. Cookies from behind a proxy subresource are that
// service's own.
func (x *exchange) answered(resp *http.Response) {
	x.code = resp.StatusCode
	if x.known != nil && vouches(resp.StatusCode) {
		x.known()
	}
	if x.lent && !x.in.path.proxies() {
		resp.Header.Del("Set-Cookie")
	}
	mapBack(resp.Header, x.f.Opts.Base)
}

// begun reports to the hooks that the head of the answer is there.
func (x *exchange) begun() {
	if !x.class.short() {
		x.seat.Release()
	}
	if x.hooks.Head != nil {
		x.hooks.Head()
	}
}

// complete reports to the hooks how long upstream took for the whole answer.
func (x *exchange) complete(spent time.Duration) {
	if x.hooks.Took != nil && x.code == http.StatusOK {
		x.hooks.Took(spent)
		x.hooks.Took = nil
	}
}

// end counts the request out. Only the first call does anything.
func (x *exchange) end() {
	x.ends.Do(func() {
		x.release()
		x.large.Close()
		if x.code == 0 {
			x.code = codeClientGone
		}
		x.hooks.answeredUpstream(x.code)
		f := x.f
		f.metrics.answered(x.class, x.code)
		f.metrics.inFlight.WithLabelValues(x.class.String()).Dec()
		f.mu.Lock()
		delete(f.mu.exchanges, x)
		f.mu.Unlock()
		f.active.Done()
	})
}

// abort cuts the request off, upstream and for the client.
func (x *exchange) abort() {
	x.cancel()
	x.sever()
	if x.waiting.CompareAndSwap(true, false) {
		x.end()
	}
}
