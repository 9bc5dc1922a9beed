// Package reauth authorises running watches periodically, which the API server itself does not do:
// is each watch's credential still valid, and its permission still granted?
//
// A reviewSchedule decides when to send each review, and pauses and ends watches. A Reauthorizer
// gives it a clock, a lock and goroutines. There is one review for each distinct credential and for
// each distinct permission, not for each watch: thousands of informers of one service account cost
// as much as one.
//
// Invariant: for each watch that is neither paused nor ended, reviews of its credential and of its
// permission were sent at most a sweep and the grace ago, and agreed. A watch is paused, not ended,
// while the API server does not answer: an API server that is unreachable for a while costs no
// client a list.
//
// The sweep does not depend on events. A watch of roles and bindings would not show changes of
// webhook authorizers and of tokens, nor what changed while that watch was broken.
package reauth

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/watchdog"
)

// ReauthorizerOptions configure a Reauthorizer.
type ReauthorizerOptions struct {
	Authenticator *auth.Authenticator
	Authorizer    *auth.Authorizer
	// Sweep is how often the API server reviews each permission. Tokens are reviewed more often, by as
	// much as the API server remembers them. 0: 25 s; not below MinSweep.
	Sweep time.Duration
	// HoldTimeout is how long a watch is paused before it is ended. 0: 10 min.
	HoldTimeout time.Duration
	// MaxChecks bounds the checks under way, of which one user has half at most. 0: 64.
	MaxChecks int
	Clock     clock.Clock    // nil: the real one
	Random    func() float64 // in [0, 1), spreads the checks; nil: math/rand's
	Metrics   *CheckMetrics  // nil: nothing is registered
	Log       *zap.Logger    // nil: nothing is logged
}

// MinSweep is the shortest sweep: what is remembered for requests must not be too old already for a
// watch to begin by.
const MinSweep = 15 * time.Second

const (
	defaultSweep       = 25 * time.Second
	defaultHoldTimeout = 10 * time.Minute
	defaultChecks      = 64
	// grace is what an answer may take beyond its turn, with repetitions, before streams are paused.
	// With the default sweep that is 29 s in all: one less than the 30 s after which no client is
	// sent what it may not have.
	grace = 4 * time.Second
)

// Reauthorizer authorises the running watches periodically.
//
// The reviews that a herd of new watches needs are spread over the sweep. The age of a review
// counts from when it was sent, also if it was sent for a request: so what the caches remember is
// within the bound, not on top of it.
//
// One goroutine runs the schedule, and one more each review under way; a stream has none. With a
// LocalDecider the invariant holds for a proof that the decider's data is fresh, in place of a
// review of the permission.
type Reauthorizer struct {
	// Static after construction.
	opts    ReauthorizerOptions
	clock   clock.Clock
	metrics *CheckMetrics
	wake    chan struct{} // holds one: the schedule has changed
	loop    watchdog.Loop // rests until something is due

	mu struct {
		sync.Mutex
		schedule *reviewSchedule
	}
}

// NewReauthorizer returns a Reauthorizer that does nothing until Run.
func NewReauthorizer(o ReauthorizerOptions) *Reauthorizer {
	o.Sweep, o.HoldTimeout = cmp.Or(o.Sweep, defaultSweep), cmp.Or(o.HoldTimeout, defaultHoldTimeout)
	o.Clock, o.Log = cmp.Or(o.Clock, clock.Clock(clock.RealClock{})), cmp.Or(o.Log, zap.NewNop())
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	r := &Reauthorizer{opts: o, clock: o.Clock, metrics: o.Metrics, wake: make(chan struct{}, 1)}
	r.mu.schedule = newReviewSchedule(scheduleOptions{
		sweep: o.Sweep, holdTimeout: o.HoldTimeout, maxChecks: cmp.Or(o.MaxChecks, defaultChecks), random: o.Random,
		key: o.Authorizer.Key, recall: r.recall,
	})
	return r
}

// Admit registers a watch that has been found authenticated and allowed, just now or by what is
// remembered. If that is too old already, the stream is paused until the API server has answered.
func (r *Reauthorizer) Admit(
	result auth.Result, what auth.Attributes, decision auth.Decision, s ReviewedStream,
) *Lease {
	p := &Lease{owner: r, stream: s}
	r.mu.Lock()
	r.mu.schedule.admit(p, result, what, decision.At, r.clock.Now())
	r.mu.Unlock()
	r.notify()
	return p
}

// Release forgets the watch. Idempotent.
func (p *Lease) Release() {
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	p.owner.mu.schedule.release(p)
}

// Check reviews at once the permissions and credentials that a change concerns, such as a binding,
// a role or a service account. For these, no answer counts whose question was sent before now. It
// returns at once, too.
func (r *Reauthorizer) Check(concerns func(who *auth.Identity, what auth.Attributes) bool) {
	r.mu.Lock()
	r.mu.schedule.recheck(concerns, r.clock.Now())
	r.mu.Unlock()
	r.notify()
}

func (r *Reauthorizer) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run sends reviews until ctx ends, and returns when none is under way any more. Without it no
// stream is ever paused or ended.
func (r *Reauthorizer) Run(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	defer r.loop.Rest()
	for {
		r.loop.Work()
		work := r.due(r.clock.Now())
		for _, call := range work.calls {
			call()
		}
		for _, c := range work.reviews {
			checks.Go(func() { r.review(ctx, c) })
		}
		r.loop.Rest()
		if !r.sleep(ctx, work.wake) {
			return nil
		}
	}
}

// Progress is a watchdog.ProgressFunc of Run.
func (r *Reauthorizer) Progress() (turns uint64, working bool) { return r.loop.Progress() }

// due returns what is to be done now.
func (r *Reauthorizer) due(now time.Time) dueWork {
	r.mu.Lock()
	defer r.mu.Unlock()
	schedule := r.mu.schedule
	t := schedule.due(now)
	r.metrics.watching.WithLabelValues(string(ofCredential)).Set(float64(len(schedule.credentials)))
	r.metrics.watching.WithLabelValues(string(ofPermission)).Set(float64(len(schedule.permissions)))
	r.metrics.held.Set(float64(schedule.held))
	for _, end := range t.ended {
		r.metrics.ends.WithLabelValues(string(end)).Inc()
	}
	return t
}

// sleep waits until something is due or has changed. It reports false when ctx has ended.
func (r *Reauthorizer) sleep(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := r.clock.NewTimer(until.Sub(r.clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.wake:
	case <-due:
	}
	return true
}

// review sends the review of a check. One that panics counts as not answered.
func (r *Reauthorizer) review(ctx context.Context, c *check) {
	f := reviewResult{verdict: auth.Unreviewed, at: r.clock.Now()}
	defer func() {
		if p := recover(); p != nil {
			f = reviewResult{verdict: auth.Unreviewed, at: f.at}
			r.panicked(c, p)
		}
		r.metrics.checks.WithLabelValues(string(c.kind), string(f.verdict)).Inc()
		r.mu.Lock()
		if f.verdict == auth.Allowed {
			r.metrics.age.Observe(f.at.Sub(c.confirmed).Seconds())
		}
		r.mu.schedule.handleResult(c, f, r.clock.Now())
		r.mu.Unlock()
		r.notify()
	}()
	if c.kind == ofPermission {
		d := r.opts.Authorizer.Renew(ctx, c.who, c.what)
		f = reviewResult{verdict: d.Verdict, at: d.At, end: EndForbidden}
		return
	}
	result := r.opts.Authenticator.Renew(ctx, c.credential)
	f = reviewResult{verdict: auth.Unreviewed, at: result.At, end: EndUnauthenticated, who: result.Identity}
	switch result.Outcome {
	case auth.Authenticated:
		f.verdict = auth.Allowed
	case auth.Refused:
		f.verdict = auth.Denied
		if end := c.credential.Expires(); !end.IsZero() && !result.At.Before(end) {
			f.end = EndCredentialExpired
		}
	}
}

// panicked logs a bug: of what panicked only what cannot hold a credential.
func (r *Reauthorizer) panicked(c *check, p any) {
	what := fmt.Sprintf("%T", p)
	if e, ok := p.(runtime.Error); ok {
		what = e.Error()
	}
	r.opts.Log.Error("BUG: a check of a watch panicked; please report this",
		zap.String("check", string(c.kind)), zap.String("panic", what), zap.ByteString("stack", debug.Stack()))
}

// recall is when the API server last agreed, and which identity a credential proved then, if that
// was for a request and is remembered.
func (r *Reauthorizer) recall(c *check) (at time.Time, who *auth.Identity, ok bool) {
	if c.kind == ofPermission {
		at, ok = r.opts.Authorizer.Recall(c.key)
		return at, nil, ok
	}
	return r.opts.Authenticator.RecallToken(c.key)
}
