package flowcontrol

import (
	"context"
	"sync"
	"time"
)

// Options are the bounds of a Gate.
type Options struct {
	// Limit is the most that is held at a time, in whatever unit widths are; 0: no limit in all.
	Limit int64
	// Share is the most of it that one flow holds; 0, or more than Limit: all of it.
	Share int64
	// Reserve lets a flow exceed its share, without waiting, while this much of the limit remains
	// free. What a flow holds is never revoked, so the reserve is kept for other flows. 0: no flow
	// holds more than its share.
	Reserve int64
	// Waiting bounds the requests in the queue, WaitingEach those of one flow. If either is 0 there is
	// no queue: a request that cannot be admitted at once is refused.
	Waiting, WaitingEach int
	// Wait bounds the time in the queue.
	Wait time.Duration
}

// Gate admits requests up to a limit, and is fair to the flows that wait. All methods may be called
// by any goroutine, and on a nil Gate, which admits every request.
type Gate struct {
	wait time.Duration // static

	mu struct {
		sync.Mutex
		state    *gateState
		pressure pressure // of all refusals
	}
}

// NewGate returns a gate, or nil if nothing is limited.
func NewGate(o Options) *Gate {
	if o.Limit <= 0 && o.Share <= 0 {
		return nil
	}
	g := &Gate{wait: o.Wait}
	g.mu.state = newGateState(o)
	return g
}

// Permit is a part of the limit that a request holds. Its owner releases it. A second Release of
// the same Permit does nothing; that does not hold for copies. The zero Permit holds nothing.
type Permit struct {
	gate  *Gate
	width int64
	flow  *flow   // guarded by gate.mu; nil: released
	part  *Permit // of a limit within this one, released with it; nil: none
}

// Release gives back what is held.
func (p *Permit) Release() {
	g := p.gate
	if g == nil {
		return
	}
	g.mu.Lock()
	if f := p.flow; f != nil {
		p.flow = nil
		g.mu.state.release(f, p.width)
	}
	g.mu.Unlock()
	if p.part != nil {
		p.part.Release()
	}
}

// Try admits a request of some width if there is room, and no request that waits precedes it. A
// width above the share of a flow counts as that share.
func (g *Gate) Try(key Flow, width int64) (Permit, bool) {
	if g == nil {
		return Permit{}, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takeLocked(key, width)
}

func (g *Gate) takeLocked(key Flow, width int64) (Permit, bool) {
	width = g.mu.state.width(width)
	f, ok := g.mu.state.take(key, width)
	if !ok {
		return Permit{}, false
	}
	return Permit{gate: g, width: width, flow: f}, true
}

// Admit is Try for requests that can wait: until there is room, ctx is done, or Options.Wait is
// over. It returns a Permit or a Refusal; with a Refusal, nothing is held.
func (g *Gate) Admit(ctx context.Context, key Flow, width int64) (Permit, *Refusal) {
	if g == nil {
		return Permit{}, nil
	}
	permit, w, refusal := g.takeOrJoin(key, width)
	if w == nil {
		return permit, refusal
	}
	return g.await(ctx, w)
}

// takeOrJoin admits a request, queues it as a waiter, or refuses it.
func (g *Gate) takeOrJoin(key Flow, width int64) (Permit, *waiter, *Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if permit, ok := g.takeLocked(key, width); ok {
		return permit, nil, nil
	}
	width = g.mu.state.width(width)
	if w := g.mu.state.join(key, width); w != nil {
		return Permit{}, w, nil
	}
	return Permit{}, nil, g.refuseLocked(key, width)
}

// refuseLocked refuses a request that finds the queue full. If its own flow has reached its bound,
// RetryAfter follows the refusals of that flow, otherwise those of all.
func (g *Gate) refuseLocked(key Flow, width int64) *Refusal {
	s, f := g.mu.state, g.mu.state.flows[key]
	reason, refused := ReasonQueueFull, &g.mu.pressure
	switch {
	case s.hasQueue():
		if f.waits() >= s.maxFlowWaiting {
			refused = &f.pressure
		}
	case f != nil && !s.isInShare(f.held, width) && s.held+width <= s.limit:
		reason, refused = ReasonShare, &f.pressure
	default:
		reason = ReasonLimit
	}
	return &Refusal{Reason: reason, RetryAfter: refused.refuse(time.Now())}
}

// await waits for the verdict on w.
func (g *Gate) await(ctx context.Context, w *waiter) (Permit, *Refusal) {
	reason := ReasonTimeout
	select {
	case <-w.ready:
	case <-time.After(g.wait):
	case <-ctx.Done():
		reason = ReasonCancelled
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch w.verdict {
	case admitted: // at the last moment, perhaps
		return Permit{gate: g, width: w.width, flow: w.flow}, nil
	case displaced:
		reason = ReasonQueueFull
	default:
		g.mu.state.leave(w)
	}
	return Permit{}, &Refusal{Reason: reason, RetryAfter: g.mu.pressure.refuse(time.Now())}
}

// Crowded reports that there is no room for a request of some width, whichever flow it is of.
func (g *Gate) Crowded(width int64) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.mu.state.hasRoom(g.mu.state.width(width))
}

// Narrow lowers the limit to a small part, of which one request may exceed it if it is alone, or
// restores it.
func (g *Gate) Narrow(on bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.state.narrow = on
	g.mu.state.advance()
}

// GateStats is what a gate holds at a moment.
type GateStats struct {
	Held, Limit int64 // Limit 0: none
	Waiting     int
	Flows       int // that hold or wait
}

// Stats is what is held, and how many requests wait.
func (g *Gate) Stats() GateStats {
	if g == nil {
		return GateStats{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.state
	stats := GateStats{Held: s.held, Limit: s.limit, Waiting: s.waiting, Flows: len(s.flows)}
	if stats.Limit == unlimited {
		stats.Limit = 0
	}
	return stats
}

// Share is the most that one flow holds; 0: there is no bound.
func (g *Gate) Share() int64 {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.state.share
}

// Reason is why a request was refused: a metric's label. The first four have the names of
// kube-apiserver's apiserver_flowcontrol_rejected_requests_total.
type Reason string

// The reasons.
const (
	ReasonLimit     Reason = "concurrency-limit" // all of the limit is held, and there is no queue
	ReasonQueueFull Reason = "queue-full"        // the queue is full, that of the flow or of all
	ReasonTimeout   Reason = "time-out"          // it waited for Options.Wait
	ReasonCancelled Reason = "cancelled"         // its client left while it waited
	ReasonShare     Reason = "user-limit"        // its flow holds its share, and there is no queue
	ReasonRate      Reason = "user-rate"         // its flow exceeds its rate
)

// Reasons are all of them: each is a metric from the start.
var Reasons = []Reason{ReasonLimit, ReasonQueueFull, ReasonTimeout, ReasonCancelled, ReasonShare, ReasonRate}

// Refusal is why a request is not admitted.
type Refusal struct {
	Reason Reason
	// RetryAfter is when the client should retry: whole seconds, at least one, and different for
	// requests that are refused at the same time.
	RetryAfter time.Duration
}
