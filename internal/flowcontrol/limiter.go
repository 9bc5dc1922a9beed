package flowcontrol

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// listQueueTimeout is how long a LIST or watch waits for its turn: about as long as for a state
	// that is on its way (design D14).
	listQueueTimeout = 5 * time.Second
	// passThroughQueueTimeout is as long as kube-apiserver lets a request wait: a quarter of what it
	// gives it in all (WithPriorityAndFairness).
	passThroughQueueTimeout = 15 * time.Second
	// unprovenFraction is the part of PassThrough and of BodyBytes, one in so many, that all unproven
	// senders have together: the rest is kept for the users that upstream has accepted.
	unprovenFraction = 8
	// userListFraction is the part of ListBytes, one in so many, that one user has at most. With all
	// of it, a single user with slow clients would keep all others from their first state.
	userListFraction = 2
)

// Limiter applies limits. A Server and its Forwarder have the same one. The nil Limiter limits
// nothing.
type Limiter struct {
	// Static after construction.
	watches, listBytes, passThrough *limit
	unprovenPassThrough             *limit // a part of passThrough
	selectors                       *selections
	rates                           *RateLimiter
	countOverRate                   func(Flow, Reason)
	heads                           *HeaderBudget
	bodies, unprovenBodies          bodyBudget                  // those of unproven senders are in both
	stats                           map[string]func() GateStats // by the names of the limits
	// relieve ends a large answer whose client is slow, if there is one; nil: none is ended. Set once.
	relieve  func()
	rejected rejections

	open context.Context // once it is done, no request waits
	stop context.CancelFunc
}

// NewLimiter makes the Limiter of l. Requests wait in q. The metrics are registered at r, which may
// be nil.
func NewLimiter(l Limits, q Queue, r prometheus.Registerer) *Limiter {
	m := newLimitMetrics(r)
	limiter := &Limiter{
		bodies: bodyBudget{most: l.BodyBytes}, unprovenBodies: bodyBudget{most: unprovenBodyBytes(l.BodyBytes)},
		heads: NewHeaderBudget(l.HeaderBytes, m.refusalCounter(LimitHeaderBytes)), stats: map[string]func() GateStats{},
		rates: NewRateLimiter(l.PassThroughQPS, l.PassThroughBurst),
	}
	limiter.countOverRate = limiter.refusalCounter(m, LimitPassThrough)
	limiter.open, limiter.stop = context.WithCancel(context.Background())
	limiter.watches = m.newLimit(LimitWatches, limiter, Options{
		Limit: int64(l.Watches), Share: int64(l.WatchesPerUser), Reserve: int64(l.WatchesReserve),
	})
	limiter.listBytes = m.newLimit(LimitListBytes, limiter, Options{
		Limit: l.ListBytes, Share: max(l.ListBytes/userListFraction, min(l.ListBytes, 1)),
		Waiting: q.Requests, WaitingEach: q.RequestsPerUser, Wait: listQueueTimeout,
	})
	passThrough := Options{
		Limit: int64(l.PassThrough), Share: int64(l.PassThroughPerUser),
		Waiting: q.Requests, WaitingEach: q.RequestsPerUser, Wait: passThroughQueueTimeout,
	}
	limiter.passThrough = m.newLimit(LimitPassThrough, limiter, passThrough)
	limiter.unprovenPassThrough = limiter.passThrough.within(unprovenPart(passThrough))
	limiter.stats[LimitPassThrough] = limiter.passThroughStats
	limiter.selectors = newSelections(m.newLimit(LimitSelectorTerms, limiter, Options{
		Limit: int64(l.SelectorTerms), Share: int64(l.SelectorTermsPerUser),
	}))
	m.showSelectors(limiter.selectors)
	m.showHeads(limiter.heads)
	return limiter
}

// refusalCounter counts what a limit rejects in the metrics, which name no user, and by flow. Once
// l is closed, requests are not rejected, but sent to another replica.
func (l *Limiter) refusalCounter(m *limitMetrics, name string) func(Flow, Reason) {
	count := m.refusalCounter(name)
	return func(flow Flow, reason Reason) {
		count(reason)
		if !l.Closed() {
			l.rejected.note(name, flow, reason)
		}
	}
}

// GateStats is the load of one limit, by its name.
func (l *Limiter) GateStats(name string) GateStats { return l.stats[name]() }

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
	return l.watches.admit(nil, flow, 1)
}

// TryList admits a large answer of some bytes if it need not wait.
func (l *Limiter) TryList(flow Flow, width int64) (Permit, bool) {
	if l == nil {
		return Permit{}, true
	}
	return l.listBytes.gate.Try(flow, width)
}

// AdmitList admits a large answer of some bytes.
func (l *Limiter) AdmitList(d OnDisconnect, flow Flow, width int64) (Permit, *Refusal) {
	if l == nil {
		return Permit{}, nil
	}
	if l.relieve != nil && l.listBytes.gate.Crowded(width) {
		l.relieve()
	}
	return l.listBytes.admit(d, flow, width)
}

// OnCrowded has relieve end one large answer whose client is slow for each large answer that has no
// room.
func (l *Limiter) OnCrowded(relieve func()) {
	if l != nil {
		l.relieve = relieve
	}
}

// AdmitPassThrough admits a request that passes through until its answer ends, or that of a watch
// begins. Unproven senders first wait for one of the few places that they have together.
func (l *Limiter) AdmitPassThrough(d OnDisconnect, flow Flow, proven bool) (Permit, *Refusal) {
	if l == nil {
		return Permit{}, nil
	}
	if proven {
		return l.passThrough.admit(d, flow, 1)
	}
	part, refusal := l.unprovenPassThrough.admit(d, flow, 1)
	if refusal != nil {
		return Permit{}, refusal
	}
	pass, refusal := l.passThrough.admit(d, flow, 1)
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

// passThroughStats is the load of PassThrough, with the requests that wait for the unproven part.
func (l *Limiter) passThroughStats() GateStats {
	all, part := l.passThrough.gate.Stats(), l.unprovenPassThrough.gate.Stats()
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
		l.countOverRate(flow, refusal.Reason)
	}
	return refusal
}

// SetLowMemory admits hardly any large answers at the same time and hardly any heavy selectors, or
// as many as usual again.
func (l *Limiter) SetLowMemory(on bool) {
	if l != nil {
		l.listBytes.gate.Narrow(on)
		l.selectors.limit.gate.Narrow(on)
	}
}

// HeaderBudget are what large heads hold; nil: they are not bounded.
func (l *Limiter) HeaderBudget() *HeaderBudget {
	if l == nil {
		return nil
	}
	return l.heads
}
