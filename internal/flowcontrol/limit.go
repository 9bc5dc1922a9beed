package flowcontrol

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// limit is one of the limits: a gate, and what is counted of it.
type limit struct {
	gate         *Gate
	open         context.Context // once it is done, no request waits
	countRefusal func(Flow, Reason)
	waited       prometheus.Observer
}

// newLimit makes one of the limits of l, and shows it.
func (m *limitMetrics) newLimit(name string, l *Limiter, o Options) *limit {
	gate := NewGate(o)
	l.stats[name] = gate.Stats
	m.showStats(name, func() GateStats { return l.GateStats(name) })
	return &limit{gate: gate, open: l.open, countRefusal: l.refusalCounter(m, name),
		waited: m.waited.WithLabelValues(name)}
}

// within is a limit on a part of what l limits. It counts what it refuses, and the time in its
// queue, as l does.
func (l *limit) within(o Options) *limit {
	part := *l
	part.gate = NewGate(o)
	return &part
}

// OnDisconnect lets gone be called once if the client leaves before stop is called. gone must not
// block.
type OnDisconnect func(gone func()) (stop func())

// admit waits for room, until the client leaves or the gate's time is over. A request that need not
// wait does not pay for noticing that its client leaves. A nil d notices none.
func (l *limit) admit(d OnDisconnect, flow Flow, width int64) (Permit, *Refusal) {
	if permit, ok := l.gate.Try(flow, width); ok {
		return permit, nil
	}
	ctx := l.open
	if d != nil {
		waiting, cancel := context.WithCancel(l.open)
		defer cancel()
		defer d(cancel)()
		ctx = waiting
	}
	began := time.Now()
	permit, refusal := l.gate.Admit(ctx, flow, width)
	if refusal != nil {
		l.countRefusal(flow, refusal.Reason)
	}
	if refusal == nil || refusal.Reason == ReasonTimeout {
		l.waited.Observe(time.Since(began).Seconds())
	}
	return permit, refusal
}
