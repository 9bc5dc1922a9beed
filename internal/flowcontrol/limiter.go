package flowcontrol

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits bound what clients have at a time, in all and for each user. 0 is no limit.
type Limits struct {
	// Watches bounds all that lasts: watches, from memory and passed through, and what passes through
	// and lasts otherwise: logs, exec, attach, port-forward, proxy. A request beyond it is refused at
	// once. While WatchesReserve of them remain free, one user may have more than WatchesPerUser; 0:
	// never.
	Watches, WatchesPerUser, WatchesReserve int
	// ListBytes bounds the large answers from memory that are being made and sent: LISTs, and the
	// states that watches begin with. One user has half of it at most. Beyond it they wait, and are
	// then refused.
	ListBytes int64
	// SelectorTerms bounds what the selectors of watches from memory weigh. A watch beyond the bound
	// is refused at once.
	SelectorTerms, SelectorTermsPerUser int
	// BodyBytes bounds the bodies that are read before they are sent on, so that they can be sent
	// again. Others are sent on while they come. Unproven senders have a part of it, also without a
	// limit.
	BodyBytes int64
	// HeaderBytes bounds what large heads of requests hold together.
	HeaderBytes int64
	// PassThrough bounds the requests that are under way to upstream and have an answer that ends. An
	// eighth of it is all that unproven senders have together: upstream has not accepted them.
	// Watches count until their answer begins; all else that lasts does not count, as in
	// kube-apiserver's flow control. Beyond it they wait, and are then refused.
	PassThrough, PassThroughPerUser int
	// PassThroughQPS is how many requests of one user pass through per second, after a burst.
	PassThroughQPS   float64
	PassThroughBurst int
}

// Queue is the room for requests that wait for one limit. The zero Queue has none: what finds the
// limit reached is refused at once.
type Queue struct {
	Requests, RequestsPerUser int
}

// DefaultQueue is as long as that of kube-apiserver's workload-low level, where controllers are: it
// holds 128 queues of 50, of which a user has 6.
var DefaultQueue = Queue{Requests: 6400, RequestsPerUser: 300}

const (
	// listQueueTimeout is how long a LIST or watch waits for its turn: about as long as for a state
	// that is on its way (design D14).
	listQueueTimeout = 5 * time.Second
	// passThroughQueueTimeout is as long as kube-apiserver lets a request wait: a quarter of what it
	// gives it in all (WithPriorityAndFairness).
	passThroughQueueTimeout = 15 * time.Second
	// unprovenFraction is the part of PassThrough and of BodyBytes, one in so many, that all senders
	// have together that upstream has not accepted yet: the rest is kept for its users.
	unprovenFraction = 8
	// unprovenBodyBytesLimit is the most of BodyBytes that they have, also if there is no limit.
	unprovenBodyBytesLimit = 16 << 20
	// userListFraction is the part of ListBytes that one user has at most. With all of it, a single
	// user with slow clients would keep all others from their first state.
	userListFraction = 2
)

// Limiter applies limits. A Server and its Forwarder have the same one. The nil Limiter limits
// nothing.
type Limiter struct {
	lasting, lists, passing *limit
	passingUnproven         *limit // within passing
	selectors               *selections
	rates                   *RateLimiter
	bodies, unprovenBodies  bodies // those of unproven senders are in both
	heads                   *HeaderBudget
	overRate                func(Reason)                // counts
	loads                   map[string]func() GateStats // static, by the names of the limits
	// ends a large answer whose client is slow, if there is one; nil: there are none. Set once
	relieve func()

	open context.Context // once it is done, no request waits
	stop context.CancelFunc
}

// NewLimiter makes the Limiter of l. Requests wait in q. The metrics are registered at r, which may
// be nil.
func NewLimiter(l Limits, q Queue, r prometheus.Registerer) *Limiter {
	m := newLimitMetrics(r)
	limiter := &Limiter{bodies: bodies{most: l.BodyBytes}, unprovenBodies: bodies{most: unprovenBodyBytes(l.BodyBytes)},
		heads: NewHeaderBudget(l.HeaderBytes),
		rates: NewRateLimiter(l.PassThroughQPS, l.PassThroughBurst), overRate: m.refuser(LimitPassThrough),
		loads: map[string]func() GateStats{}}
	limiter.open, limiter.stop = context.WithCancel(context.Background())
	limiter.lasting = m.limit(LimitWatches, limiter,
		Options{Limit: int64(l.Watches), Share: int64(l.WatchesPerUser), Reserve: int64(l.WatchesReserve)})
	limiter.lists = m.limit(LimitListBytes, limiter, Options{
		Limit: l.ListBytes, Share: max(l.ListBytes/userListFraction, min(l.ListBytes, 1)),
		Waiting: q.Requests, WaitingEach: q.RequestsPerUser, Wait: listQueueTimeout,
	})
	passing := Options{
		Limit: int64(l.PassThrough), Share: int64(l.PassThroughPerUser),
		Waiting: q.Requests, WaitingEach: q.RequestsPerUser, Wait: passThroughQueueTimeout,
	}
	limiter.passing = m.limit(LimitPassThrough, limiter, passing)
	limiter.passingUnproven = m.within(limiter.passing, unprovenPart(passing))
	limiter.loads[LimitPassThrough] = limiter.loadPassThrough
	limiter.selectors = newSelections(m.limit(LimitSelectors, limiter, Options{
		Limit: int64(l.SelectorTerms), Share: int64(l.SelectorTermsPerUser),
	}))
	m.selectors(limiter.selectors)
	m.heads(limiter.heads)
	return limiter
}

// GateStats is the load of one limit, by its name.
func (l *Limiter) GateStats(name string) GateStats { return l.loads[name]() }

// Close refuses all requests that wait, and those that would have to.
func (l *Limiter) Close() {
	if l != nil {
		l.stop()
	}
}

// Closed reports that Close was called: the proxy is about to stop.
func (l *Limiter) Closed() bool { return l != nil && l.open.Err() != nil }

// AdmitLasting admits a watch or another request that lasts.
func (l *Limiter) AdmitLasting(flow Flow) (Permit, *Refusal) {
	if l == nil {
		return Permit{}, nil
	}
	return l.lasting.admit(nil, flow, 1)
}

// TryList admits a large answer of some bytes if it need not wait.
func (l *Limiter) TryList(flow Flow, width int64) (Permit, bool) {
	if l == nil {
		return Permit{}, true
	}
	return l.lists.gate.Try(flow, width)
}

// AdmitList admits a large answer of some bytes.
func (l *Limiter) AdmitList(d OnDisconnect, flow Flow, width int64) (Permit, *Refusal) {
	if l == nil {
		return Permit{}, nil
	}
	if l.relieve != nil && l.lists.gate.Crowded(width) {
		l.relieve()
	}
	return l.lists.admit(d, flow, width)
}

// OnCrowded has one large answer whose client is slow ended for each that has to wait, since there
// is no room for it.
func (l *Limiter) OnCrowded(relieve func()) {
	if l != nil {
		l.relieve = relieve
	}
}

// AdmitPassThrough admits a request that passes through and has one answer, or the beginning of
// one. Senders that are not proven first wait for one of the few places that they have together.
func (l *Limiter) AdmitPassThrough(d OnDisconnect, flow Flow, proven bool) (Permit, *Refusal) {
	if l == nil {
		return Permit{}, nil
	}
	if proven {
		return l.passing.admit(d, flow, 1)
	}
	part, refusal := l.passingUnproven.admit(d, flow, 1)
	if refusal != nil {
		return Permit{}, refusal
	}
	pass, refusal := l.passing.admit(d, flow, 1)
	if refusal != nil {
		part.Release()
		return Permit{}, refusal
	}
	pass.part = &part
	return pass, nil
}

// unprovenPart are the bounds of what unproven senders have together of what passes through. One
// flow has half of it, so that one address leaves room for others.
func unprovenPart(o Options) Options {
	if o.Limit <= 0 {
		o.Share = 0
		return o
	}
	o.Limit = max(o.Limit/unprovenFraction, 1)
	o.Share = min(max(o.Limit/2, 1), cmp.Or(o.Share, o.Limit))
	return o
}

// loadPassThrough is the load of what passes through, with the requests that wait for the unproven
// part.
func (l *Limiter) loadPassThrough() GateStats {
	all, part := l.passing.gate.Stats(), l.passingUnproven.gate.Stats()
	all.Waiting += part.Waiting
	all.Flows = max(all.Flows, part.Flows)
	return all
}

// AllowRate counts a request that passes through.
func (l *Limiter) AllowRate(flow Flow) *Refusal {
	if l == nil {
		return nil
	}
	refusal := l.rates.Allow(flow)
	if refusal != nil {
		l.overRate(refusal.Reason)
	}
	return refusal
}

// SetLowMemory admits hardly any large answers at the same time and hardly any heavy selectors, or
// as many as usual again.
func (l *Limiter) SetLowMemory(on bool) {
	if l != nil {
		l.lists.gate.Narrow(on)
		l.selectors.limit.gate.Narrow(on)
	}
}

// ReserveBody reserves room for a body that is to be read before it is sent on, and returns how to
// give it back; nil: there is no room. Senders that are not proven have a small part together.
func (l *Limiter) ReserveBody(size int64, proven bool) (release func()) {
	switch {
	case l == nil:
		return func() {}
	case !l.bodies.take(size):
		return nil
	case proven:
		return func() { l.bodies.held.Add(-size) }
	case !l.unprovenBodies.take(size):
		l.bodies.held.Add(-size)
		return nil
	}
	return func() {
		l.bodies.held.Add(-size)
		l.unprovenBodies.held.Add(-size)
	}
}

// unprovenBodyBytes is how many bytes of bodies are read for unproven senders together.
func unprovenBodyBytes(all int64) int64 {
	if all <= 0 {
		return unprovenBodyBytesLimit
	}
	return min(unprovenBodyBytesLimit, max(all/unprovenFraction, 1))
}

// HeaderBudget are what large heads hold; nil: they are not bounded.
func (l *Limiter) HeaderBudget() *HeaderBudget {
	if l == nil {
		return nil
	}
	return l.heads
}

// bodies are those that are being read, or have been and are being sent on.
type bodies struct {
	most int64 // in bytes; 0: no limit
	held atomic.Int64
}

func (b *bodies) take(size int64) bool {
	if held := b.held.Add(size); b.most <= 0 || held <= b.most {
		return true
	}
	b.held.Add(-size)
	return false
}

// OnDisconnect lets gone be called once if the client leaves before stop is called. gone must not
// block.
type OnDisconnect func(gone func()) (stop func())

// limit is one of the limits: a gate, and what is counted of it.
type limit struct {
	gate    *Gate
	open    context.Context
	refused func(Reason)
	waited  prometheus.Observer
}

// admit waits for room, until the client leaves or the gate's time is over. A request that need not
// wait does not pay for noticing that its client leaves.
func (l *limit) admit(d OnDisconnect, flow Flow, width int64) (Permit, *Refusal) {
	if pass, ok := l.gate.Try(flow, width); ok {
		return pass, nil
	}
	ctx := l.open
	if d != nil {
		waiting, cancel := context.WithCancel(l.open)
		defer cancel()
		defer d(cancel)()
		ctx = waiting
	}
	began := time.Now()
	pass, refusal := l.gate.Admit(ctx, flow, width)
	if refusal != nil {
		l.refused(refusal.Reason)
	}
	if refusal == nil || refusal.Reason == ReasonTimeout {
		l.waited.Observe(time.Since(began).Seconds())
	}
	return pass, refusal
}

// gzipRatio is about how much smaller objects are when they are compressed.
const gzipRatio = 8

// Width is what a large answer of so many bytes counts as.
func Width(size int64, compressed bool) int64 {
	if compressed {
		size /= gzipRatio
	}
	return max(size, LeastWidth)
}

// LeastWidth is what a large answer counts at least: while it waits for its client it keeps the
// pieces that it is sent in, here and in the kernel, however small a part of the whole they are.
const LeastWidth = 192 << 10

// IsLarge tells the bodies that are not written at once.
func IsLarge(size int64) bool { return size < 0 || size > 64<<10 }

// PinnedBytes is what a large body of so many bytes keeps alive.
func PinnedBytes(size int64) int64 { return max(size, LeastWidth) }
