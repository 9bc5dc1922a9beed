package passthrough

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/clientconn"
	"spillway/internal/flowcontrol"
)

// exchange is one request on its way through and its answer. It is counted and can be aborted from
// begin to end.
type exchange struct {
	f      *Forwarder
	in     *Inbound
	client clientControl
	conn   net.Conn // the client's, over HTTP/1.1
	ctx    context.Context
	cancel context.CancelFunc

	// What upstream gets, and by which transport.
	target    *url.URL
	header    http.Header
	transport http.RoundTripper
	body      *clientBody // of a request whose body is streamed
	isLent    bool        // the transport's credentials are not the client's

	// What the limits know of it.
	flow          flowcontrol.Flow
	isProven      bool                   // upstream is known to accept the sender
	permit        flowcontrol.Permit     // of the requests under way; a watch has it until its answer begins
	lastingPermit flowcontrol.Permit     // of lasting requests
	releaseBody   func()                 // gives back what is reserved for an owned body; nil: nothing is
	large         *flowcontrol.LargeHead // the request's head; nil: it is not large

	// Owned by the goroutine that answers.
	observer       AnswerObserver
	code           int  // of the answer; 0: none yet
	isTimeReported bool // the observer knows how long upstream took
	isUnderWay     bool // it is counted as in flight

	endOnce sync.Once
	// handover is true while the client's connection is on its way from its server. The goroutine that
	// resets it goes on with the exchange, or ends it.
	handover  atomic.Bool
	departure struct { // of the client
		sync.Mutex
		isOver  bool // it is not watched for any more
		watched *clientconn.WatchedConn
	}
}

// clientControl is how the client of an exchange is reached, whatever the way of its answer.
type clientControl struct {
	cut          func() // breaks its answer off, so that its server ends it. Any goroutine may call it
	onDisconnect flowcontrol.OnDisconnect
	markProven   func() // called when upstream accepts the sender of the request
}

// begin decides what goes upstream of a request, in one place for all ways there, and registers it.
// Of a request that does not go it returns the answer. One that goes still has to await its permit.
func (f *Forwarder) begin(in *Inbound, sender SenderIdentity, o AnswerObserver, to clientControl) (*exchange,
	*apistatus.Answer) {
	target, err := targetURL(f.opts.Base, in.target)
	if err != nil {
		return nil, apistatus.Malformed("malformed request target")
	}
	if why := unsendableReason(in); why != "" {
		f.metrics.countAnswer(in.class, http.StatusBadRequest)
		return nil, apistatus.Malformed(why)
	}
	if s := f.refusal(in, sender); s != nil {
		f.metrics.countAnswer(in.class, int(s.Code))
		return nil, refusalOf(in, s)
	}
	x := &exchange{
		f: f, in: in, client: to, observer: o, target: target, isLent: sender.canLend(in.Header), flow: sender.Flow,
	}
	if x.isProven = f.isProven(sender, in.Header); x.isProven {
		to.markProven() // upstream may take long to say so again
	}
	x.reserveBody()
	x.header, x.transport = f.upstreamHeader(in, sender), f.transport(sender, in)
	x.ctx, x.cancel = context.WithCancel(f.base)
	if !f.register(x) {
		x.release()
		f.metrics.countAnswer(in.class, http.StatusServiceUnavailable)
		return nil, apistatus.Limited(apistatus.StatusFormat{}, true, 0)
	}
	if x.transport == nil {
		x.endWith(http.StatusForbidden)
		return nil, refusalOf(in, apistatus.Forbidden(
			"this proxy has no identity of its own to act with: send your own Authorization"))
	}
	if refusal := x.acquireLastingPermit(); refusal != nil {
		return nil, x.refusalAnswer(refusal)
	}
	return x, nil
}

// refusalOf is the answer to a request that does not go upstream. The connection ends as it would
// have with the answer to one that lasts (DEV-11).
func refusalOf(in *Inbound, s *metav1.Status) *apistatus.Answer {
	a := apistatus.Failure(s)
	a.HangUp = !in.class.isShort()
	return a
}

// reserveBody reserves room for a body that is to be owned. Without room it is streamed.
func (x *exchange) reserveBody() {
	if x.in.body != bodyOwned {
		return
	}
	if x.releaseBody = x.f.opts.Limiter.ReserveBody(x.in.contentLength, x.isProven); x.releaseBody == nil {
		x.in.body = bodyStreamed
	}
}

// acquireLastingPermit counts x against the rate of its flow, and gives a lasting request its
// permit. It does not wait. Probes are exempt.
func (x *exchange) acquireLastingPermit() *flowcontrol.Refusal {
	if x.in.isProbe() {
		return nil
	}
	refusal := x.f.opts.Limiter.AllowRate(x.flow)
	if refusal == nil && !x.in.class.isShort() {
		x.lastingPermit, refusal = x.f.opts.Limiter.AdmitLasting(x.flow)
	}
	return refusal
}

// awaitPermit waits until x may go upstream, as kube-apiserver's flow control would
// (WithPriorityAndFairness): a watch has a permit until its answer begins, and other lasting
// requests need none. Probes are exempt. If x may not go it has ended, and the answer is returned.
func (x *exchange) awaitPermit() *apistatus.Answer {
	if !x.in.isProbe() && (x.in.class.isShort() || x.in.isWatch()) {
		var refusal *flowcontrol.Refusal
		x.permit, refusal = x.f.opts.Limiter.AdmitPassThrough(x.client.onDisconnect, x.flow, x.isProven)
		if refusal != nil {
			return x.refusalAnswer(refusal)
		}
	}
	x.isUnderWay = true
	x.f.metrics.inFlight.WithLabelValues(x.in.class.String()).Inc()
	x.observer.Propagate(x.header)
	return nil
}

// refusalAnswer ends x, which may not go within the limits, and returns the answer.
func (x *exchange) refusalAnswer(refusal *flowcontrol.Refusal) *apistatus.Answer {
	closed := x.f.opts.Limiter.Closed()
	a := apistatus.Limited(apistatus.StatusFormat{}, closed, refusal.RetryAfter)
	code := a.Code
	if !closed && refusal.Reason == flowcontrol.ReasonCancelled {
		code, a.HangUp = codeClientGone, true // the client does not read what is answered now
	}
	x.endWith(code)
	return a
}

// earlyEndAnswer ends x, whose body did not come, and returns the answer.
func (x *exchange) earlyEndAnswer() *apistatus.Answer {
	x.endWith(codeClientGone)
	a := apistatus.Failure(apistatus.BadRequest("the request body ended early"))
	a.HangUp = true
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
	x.departure.Lock()
	defer x.departure.Unlock()
	if !x.departure.isOver {
		x.departure.watched = x.f.poller.Watch(x.conn, x.cancel)
	}
}

// stopWatchingClient ends that for good.
func (x *exchange) stopWatchingClient() {
	x.departure.Lock()
	defer x.departure.Unlock()
	x.departure.isOver = true
	x.departure.watched.Stop()
	x.departure.watched = nil
}

// noteHead notes the head of upstream's answer, and maps back what leads to upstream's addresses. A
// cookie that a front hands out is worth what the credentials of its request were: the client keeps
// none that was issued to lent credentials. Cookies from behind a proxy subresource are that
// service's own.
func (x *exchange) noteHead(resp *http.Response) {
	x.code = resp.StatusCode
	if x.in.hasCredentials() && isAcceptance(x.code) {
		x.f.tokens.addToken(x.in.Header)
		x.client.markProven()
	}
	if x.isLent && !x.in.path.isProxy() {
		resp.Header.Del("Set-Cookie")
	}
	mapBack(resp.Header, x.f.opts.Base)
}

// reportTime reports once how long upstream took for the whole answer.
func (x *exchange) reportTime(spent time.Duration) {
	if x.code == http.StatusOK && !x.isTimeReported {
		x.isTimeReported = true
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
		f.metrics.countAnswer(x.in.class, x.code)
		if x.isUnderWay {
			f.metrics.inFlight.WithLabelValues(x.in.class.String()).Dec()
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
	if x.handover.CompareAndSwap(true, false) {
		x.end()
	}
}
