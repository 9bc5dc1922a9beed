package passthrough

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	isLent    bool // the transport's credentials are not the client's
	isProven  bool // upstream is known to accept the sender
	flow      flowcontrol.Flow
	client    clientControl
	conn      net.Conn    // the client's, if it is this exchange's alone
	body      *clientBody // sent on while it comes; nil: none is
	ctx       context.Context
	cancel    context.CancelFunc

	permit        flowcontrol.Permit // of the requests under way; a watch has it until its answer begins
	lastingPermit flowcontrol.Permit // of what lasts
	releaseBody   func()             // gives back what is reserved for the body; nil: nothing is
	observer      AnswerObserver
	code          int         // of the answer; 0: none yet. Owned by the goroutine that answers
	completed     bool        // the observer knows how long upstream took
	underWay      bool        // it has had its turn
	waiting       atomic.Bool // its connection is on its way from its server: abort alone would end it
	endOnce       sync.Once
	large         *flowcontrol.LargeHead // the request's head; nil: it is not large

	watch struct { // for the client's departure
		sync.Mutex
		over bool
		on   *clientconn.PollHandle
	}
}

// clientControl is how the client of an exchange is reached, whatever the way of its answer.
type clientControl struct {
	cut          func() // breaks its answer off, so that its server ends it. Any goroutine may call it
	onDisconnect flowcontrol.OnDisconnect
	markProven   func() // called when upstream accepts the sender of the request; nil: not needed
}

// begin decides what goes upstream of a request, in one place for all ways there, and registers it.
// Of a request that does not go it returns the answer. One that goes still has to take a seat, once
// its body is here if that is to be read ahead.
func (f *Forwarder) begin(in *Inbound, b SenderIdentity, o AnswerObserver, to clientControl) (*exchange,
	*apistatus.Answer) {
	target, err := targetURL(f.Opts.Base, in.target)
	if err != nil {
		return nil, apistatus.Malformed("malformed request target")
	}
	if why := unsendableReason(in); why != "" {
		f.metrics.countAnswer(in.class(), http.StatusBadRequest)
		return nil, apistatus.Malformed(why)
	}
	if s := f.refusal(in, b); s != nil {
		f.metrics.countAnswer(in.class(), int(s.Code))
		return nil, refusalOf(in, s)
	}
	x := &exchange{f: f, in: in, class: in.class(), target: target, isLent: b.canLend(in.Header), flow: b.Flow, client: to,
		observer: o}
	if x.isProven = f.isProven(b, in.Header); x.isProven && to.markProven != nil {
		to.markProven() // upstream may take long to say so again
	}
	x.reserveBody()
	x.header, x.transport = outgoingHeader(in.Header, f.isClaimed, in.peer, in.upgrade), f.transport(b, in, x.class)
	if b.As != nil {
		dropIdentityHeaders(x.header)
	}
	if x.isLent {
		dropPlaceHeaders(x.header)
	}
	x.ctx, x.cancel = context.WithCancel(f.base)
	if !f.register(x) {
		x.release()
		f.metrics.countAnswer(x.class, http.StatusServiceUnavailable)
		return nil, apistatus.Limited(apistatus.StatusFormat{}, true, 0)
	}
	if x.transport == nil {
		x.endWith(http.StatusForbidden)
		return nil, refusalOf(in, apistatus.Forbidden(
			"this proxy has no identity of its own to act with: send your own Authorization"))
	}
	if refusal := x.acquirePermits(); refusal != nil {
		return nil, x.refusalAnswer(refusal)
	}
	return x, nil
}

// refusalOf is the answer to a request that does not go upstream. The connection ends as it would
// have with the answer to one that lasts (DEV-11).
func refusalOf(in *Inbound, s *metav1.Status) *apistatus.Answer {
	a := apistatus.Failure(s)
	a.HangUp = !in.class().isShort()
	return a
}

// reserveBody reserves room for the body, or has it sent on while it comes.
func (x *exchange) reserveBody() {
	if x.in.length > 0 && x.in.isRepeatable(x.class) {
		x.releaseBody = x.f.Opts.Limiter.ReserveBody(x.in.length, x.isProven)
		x.in.passed = x.releaseBody == nil
	}
}

// acquirePermits admits x as far as that does not have to wait. Probes are exempt.
func (x *exchange) acquirePermits() *flowcontrol.Refusal {
	if x.in.isProbe() {
		return nil
	}
	refusal := x.f.Opts.Limiter.AllowRate(x.flow)
	if refusal == nil && !x.class.isShort() {
		x.lastingPermit, refusal = x.f.Opts.Limiter.AdmitLasting(x.flow)
	}
	return refusal
}

// acquirePermit waits until x may go upstream, as kube-apiserver's flow control would
// (WithPriorityAndFairness): a watch has a seat until its answer begins, and other lasting requests
// have none. They count as lasting. Probes are exempt. If x may not go it has ended, and the answer
// is returned.
func (x *exchange) acquirePermit() *apistatus.Answer {
	if !x.in.isProbe() && (x.class.isShort() || x.class == classStream && isWatch(x.in.path, x.in.query)) {
		var refusal *flowcontrol.Refusal
		if x.permit, refusal = x.f.Opts.Limiter.AdmitPassThrough(x.client.onDisconnect, x.flow, x.isProven); refusal != nil {
			return x.refusalAnswer(refusal)
		}
	}
	x.underWay = true
	x.f.metrics.inFlight.WithLabelValues(x.class.String()).Inc()
	x.observer.Propagate(x.header)
	return nil
}

// refusalAnswer ends x, which may not go within the limits, and returns the answer.
func (x *exchange) refusalAnswer(refusal *flowcontrol.Refusal) *apistatus.Answer {
	closed := x.f.Opts.Limiter.Closed()
	a := apistatus.Limited(apistatus.StatusFormat{}, closed, refusal.RetryAfter)
	code := a.Code
	if !closed && refusal.Reason == flowcontrol.ReasonCancelled {
		code, a.HangUp = codeClientGone, true // the client does not read what is answered now
	}
	x.endWith(code)
	return a
}

// endWith ends x, to which upstream gives no answer.
func (x *exchange) endWith(code int) {
	x.code = code
	x.observer = Unobserved{} // its own answer is observed where it is written
	x.end()
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
	x.permit.Release()
	x.lastingPermit.Release()
	if x.releaseBody != nil {
		x.releaseBody()
	}
}

// watchClient cancels x once its client leaves.
func (x *exchange) watchClient() {
	x.watch.Lock()
	defer x.watch.Unlock()
	if !x.watch.over {
		x.watch.on = x.f.poller.Watch(x.conn, x.cancel)
	}
}

// stopWatchingClient ends that for good.
func (x *exchange) stopWatchingClient() {
	x.watch.Lock()
	defer x.watch.Unlock()
	x.watch.over = true
	x.watch.on.Stop()
	x.watch.on = nil
}

// AnswerObserver follows a request on its way through, and its answer. One goroutine at a time
// calls it.
type AnswerObserver interface {
	// Propagate adds to the headers that upstream gets what names the request's trace.
	Propagate(header http.Header)
	// AnswerBegan is called when upstream's answer has begun, or will not come, unless Forward returns
	// then anyway. It may be called more than once.
	AnswerBegan()
	// AnswerTook receives once how long upstream took for a whole short answer, if one came.
	AnswerTook(time.Duration)
	// Answered is called with the code of upstream's answer, or with ours in its place. It may be
	// called more than once: the first call counts.
	Answered(code int)
	// Refused is called with an answer of ours to a request that does not go upstream.
	Refused(a *apistatus.Answer)
}

// Unobserved is the observer of a request that no one observes.
type Unobserved struct{}

// Propagate implements AnswerObserver.
func (Unobserved) Propagate(http.Header) {}

// AnswerBegan implements AnswerObserver.
func (Unobserved) AnswerBegan() {}

// AnswerTook implements AnswerObserver.
func (Unobserved) AnswerTook(time.Duration) {}

// Answered implements AnswerObserver.
func (Unobserved) Answered(int) {}

// Refused implements AnswerObserver.
func (Unobserved) Refused(*apistatus.Answer) {}

// refuse answers a request that does not go upstream.
func refuse(w apistatus.Responder, o AnswerObserver, a *apistatus.Answer) {
	o.Refused(a)
	a.Write(w)
}

// noteAnswer notes the head of upstream's answer, and maps back what leads to upstream's addresses.
// A cookie that a front hands out is worth what the credentials of its request were: the client
// keeps none that was issued to lent credentials. Cookies from behind a proxy subresource are that
// service's own.
func (x *exchange) noteAnswer(resp *http.Response) {
	x.code = resp.StatusCode
	if x.in.hasCredentials() && isAcceptance(x.code) {
		x.f.tokens.addToken(x.in.Header)
		if x.client.markProven != nil {
			x.client.markProven()
		}
	}
	if x.isLent && !x.in.path.isProxy() {
		resp.Header.Del("Set-Cookie")
	}
	mapBack(resp.Header, x.f.Opts.Base)
}

// noteAnswerBegun reports that the head of the answer is there.
func (x *exchange) noteAnswerBegun() {
	if !x.class.isShort() {
		x.permit.Release()
	}
	x.observer.AnswerBegan()
}

// complete reports once how long upstream took for the whole answer.
func (x *exchange) complete(spent time.Duration) {
	if x.code == http.StatusOK && !x.completed {
		x.completed = true
		x.observer.AnswerTook(spent)
	}
}

// end counts the request out. Only the first call does anything.
func (x *exchange) end() {
	x.endOnce.Do(func() {
		x.stopWatchingClient()
		x.release()
		x.large.Close()
		if x.code == 0 {
			x.code = codeClientGone
		}
		x.observer.Answered(x.code)
		f := x.f
		f.metrics.countAnswer(x.class, x.code)
		if x.underWay {
			f.metrics.inFlight.WithLabelValues(x.class.String()).Dec()
		}
		f.mu.Lock()
		delete(f.mu.exchanges, x)
		f.mu.Unlock()
		f.active.Done()
	})
}

// abort cuts the request off, upstream and for the client.
func (x *exchange) abort() {
	x.cancel()
	x.client.cut()
	if x.waiting.CompareAndSwap(true, false) {
		x.end()
	}
}
