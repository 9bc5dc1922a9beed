package rbac

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"spillway/internal/auth"
)

const (
	// checkedShare of the answers are checked.
	checkedShare = 0.01
	// unsettledPeriod is how long after a change the two sides may see things differently.
	unsettledPeriod = 30 * time.Second
)

// checkedDecider answers questions by what is mirrored here, as far as it can. A share of its
// answers is also reviewed by the API server, in the background.
//
// When the API server denies what was allowed here, nothing more is answered here from that moment
// on. Both may be right: a permission was removed or added meanwhile, and each side learned of it
// in its own time. So once the tables have been proven again, the question is put again. If the API
// server still denies it and it is still allowed here, the decider retires: an authorizer that
// cannot be seen from here has a say. Each denial has to be explained before anything is answered
// here again.
type checkedDecider[Q, A any] struct {
	// Static after construction.
	deciderOptions[Q, A]
	authorizer *LocalAuthorizer

	decides atomic.Bool // there are no doubts, and it has not retired

	mu struct {
		sync.Mutex
		doubts  int // denials that are not explained yet
		retired bool
	}
}

type deciderOptions[Q, A any] struct {
	kind        string // of the reviews that it answers, for metrics
	decide      auth.DecideFunc[Q, A]
	awaitsProof func(Q) bool // decide does not answer it, but will if nothing changes
	review      auth.ReviewFunc[Q, A]
	agrees      func(here, there A) bool
}

func newCheckedDecider[Q, A any](r *LocalAuthorizer, o deciderOptions[Q, A]) *checkedDecider[Q, A] {
	d := &checkedDecider[Q, A]{deciderOptions: o, authorizer: r}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.updateLocked()
	return d
}

// decideChecked answers a question, if it can. If it is chosen for a check and too many checks wait
// already, the API server is to answer: so no check is left out.
func (d *checkedDecider[Q, A]) decideChecked(digest auth.Digest, q Q) (auth.Answer[A], bool) {
	if !d.decides.Load() {
		return auth.Answer[A]{}, false
	}
	a, ok := d.decide(digest, q)
	if !ok {
		return auth.Answer[A]{}, false
	}
	isChosen := d.authorizer.opts.Random() < checkedShare
	if isChosen && !d.authorizer.submit(func(ctx context.Context) { d.check(ctx, digest, q, a) }) {
		return auth.Answer[A]{}, false
	}
	return a, true
}

// check has the API server review what was answered here.
func (d *checkedDecider[Q, A]) check(ctx context.Context, digest auth.Digest, q Q, here auth.Answer[A]) {
	there := d.review(ctx, digest, q)
	switch {
	case there.Err != nil:
		d.count(checkUnanswered)
	case d.agrees(here.Value, there.Value):
		d.count(checkAgreed)
	default:
		d.count(checkDenied)
		d.addDoubts(1)
		d.settle(ctx, digest, q, here.At)
	}
}

// explanation is what is known of the reason of a denial.
type explanation int

const (
	explanationPending explanation = iota
	explanationChange              // the permission was removed or added meanwhile
	explanationNone                // the API server denies what its rules allow
)

// settle waits for the explanation of a denial of what was answered here.
func (d *checkedDecider[Q, A]) settle(ctx context.Context, digest auth.Digest, q Q, answered time.Time) {
	for denied := d.authorizer.clock.Now(); ; {
		d.authorizer.await(ctx, nil, d.authorizer.clock.Now().Add(proofRetryInterval))
		if ctx.Err() != nil {
			return
		}
		switch d.explain(ctx, digest, q, answered, denied) {
		case explanationChange:
			d.addDoubts(-1)
			return
		case explanationNone:
			d.retire()
			return
		}
	}
}

// explain puts a question again by tables that have been proven since its denial.
func (d *checkedDecider[Q, A]) explain(ctx context.Context, digest auth.Digest, q Q, answered, denied time.Time,
) explanation {
	if !d.authorizer.provenSince(denied) {
		return explanationPending
	}
	here, ok := d.decide(digest, q)
	switch {
	case !d.authorizer.provenSince(denied): // decide may have seen other tables than those
		return explanationPending
	case !ok && d.awaitsProof(q): // added perhaps, and perhaps not removed
		return explanationPending
	case !ok: // removed
		return explanationChange
	case !d.authorizer.changedSince(answered.Add(-unsettledPeriod)):
		return explanationNone
	}
	there := d.review(ctx, digest, q)
	switch {
	case there.Err != nil:
		return explanationPending
	case d.agrees(here.Value, there.Value): // added
		return explanationChange
	}
	return explanationNone
}

// addDoubts changes the number of doubts.
func (d *checkedDecider[Q, A]) addDoubts(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.doubts += n
	d.updateLocked()
}

// updateLocked settles whether it decides.
func (d *checkedDecider[Q, A]) updateLocked() {
	decides, shown := d.mu.doubts == 0 && !d.mu.retired, 0.0
	if decides {
		shown = 1
	}
	d.decides.Store(decides)
	d.authorizer.metrics.enabled.WithLabelValues(d.kind).Set(shown)
}

// retire ends decisions for good.
func (d *checkedDecider[Q, A]) retire() {
	d.mu.Lock()
	before := d.mu.retired
	d.mu.retired = true
	d.updateLocked()
	d.mu.Unlock()
	if before {
		return
	}
	d.authorizer.metrics.disagreements.WithLabelValues(d.kind).Inc()
	d.authorizer.log.Error("upstream denies what its rules allow: "+
		"another authorizer or authenticator of its has a say; from now on upstream reviews everything",
		zap.String("review", d.kind))
}

func (d *checkedDecider[Q, A]) count(result string) {
	d.authorizer.metrics.spotChecks.WithLabelValues(d.kind, result).Inc()
}
