package rbac

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"spillway/internal/auth"
)

// local answers questions by what is mirrored here, as far as it can, and has one in a hundred of
// its answers checked by upstream in the background.
//
// When upstream denies what was allowed here, nothing more is answered here, from that moment on.
// It may be that both are right: a right has gone, or come, in between, and each heard of it in its
// own time. So when the tables have been proven anew, the question is put once more; if upstream
// denies it still and here it is still allowed, that is for good: an authorizer that cannot be seen
// from here has a say. Each denial has to be explained before anything is answered here again.
type local[Q, A any] struct {
	// Static after construction.
	kind   string // of reviews that it answers, for metrics
	rights *LocalAuthorizer
	answer auth.DecideFunc[Q, A]
	waits  func(Q) bool // it is not answered, but will be if nothing changes; nil: that cannot be
	agrees func(here, there A) bool
	review auth.ReviewFunc[Q, A]

	decides atomic.Bool // there are no doubts, and it has not retired

	mu struct {
		sync.Mutex
		doubts  int // denials that are not explained yet
		retired bool
	}
}

const (
	// checkedShare of the answers are checked.
	checkedShare = 0.01
	// unsettled is how long after a change two sides may see things differently.
	unsettled = 30 * time.Second
)

// What upstream says of a local decision, as metrics name it.
const (
	checkAgreed  = "agreed"
	checkDenied  = "denied"
	checkUnasked = "error"
)

func newLocal[Q, A any](kind string, r *LocalAuthorizer, review auth.ReviewFunc[Q, A], answer auth.DecideFunc[Q, A],
	agrees func(here, there A) bool) *local[Q, A] {
	l := &local[Q, A]{kind: kind, rights: r, answer: answer, agrees: agrees, review: review}
	l.doubt(0)
	return l
}

// ask answers a question, if it can. Nothing is left out of the checks because there are too many
// of them: then upstream is to answer.
func (l *local[Q, A]) ask(key auth.Digest, q Q) (auth.Answer[A], bool) {
	if !l.decides.Load() {
		return auth.Answer[A]{}, false
	}
	a, ok := l.answer(key, q)
	if !ok {
		return auth.Answer[A]{}, false
	}
	if l.rights.opts.Random() < checkedShare && !l.rights.submit(func(ctx context.Context) { l.check(ctx, key, q, a) }) {
		return auth.Answer[A]{}, false
	}
	return a, true
}

// check has upstream answer what was answered here.
func (l *local[Q, A]) check(ctx context.Context, key auth.Digest, q Q, here auth.Answer[A]) {
	there := l.review(ctx, key, q)
	switch {
	case there.Err != nil:
		l.count(checkUnasked)
	case l.agrees(here.Value, there.Value):
		l.count(checkAgreed)
	default:
		l.count(checkDenied)
		l.doubt(1)
		l.settle(ctx, key, q, here.At)
	}
}

// settle finds out whether upstream's denial has to do with a change.
func (l *local[Q, A]) settle(ctx context.Context, key auth.Digest, q Q, at time.Time) {
	for denied := l.rights.clock.Now(); ; {
		l.rights.await(ctx, nil, l.rights.clock.Now().Add(proveRetry))
		if ctx.Err() != nil {
			return
		}
		here, ok, proven := l.since(key, q, denied)
		switch {
		case !proven:
		case !ok && l.waits != nil && l.waits(q): // it may have come, and may not have gone
		case !ok:
			l.doubt(-1) // it has gone
			return
		case !l.rights.changedSince(at.Add(-unsettled)):
			l.retire()
			return
		default:
			there := l.review(ctx, key, q)
			switch {
			case there.Err != nil:
			case l.agrees(here.Value, there.Value):
				l.doubt(-1) // it has come
				return
			default:
				l.retire()
				return
			}
		}
	}
}

// since answers a question by tables that have been proven since a time, and still are.
func (l *local[Q, A]) since(key auth.Digest, q Q, after time.Time) (here auth.Answer[A], ok, proven bool) {
	if !l.rights.provenSince(after) {
		return auth.Answer[A]{}, false, false
	}
	here, ok = l.answer(key, q)
	return here, ok, l.rights.provenSince(after)
}

// doubt notes that there is one doubt more, or less. It decides while there is none.
func (l *local[Q, A]) doubt(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.doubts += more
	l.showLocked()
}

// showLocked says whether it decides.
func (l *local[Q, A]) showLocked() {
	decides, shown := l.mu.doubts == 0 && !l.mu.retired, 0.0
	if decides {
		shown = 1
	}
	l.decides.Store(decides)
	l.rights.metrics.deciding.WithLabelValues(l.kind).Set(shown)
}

// retire ends decisions for good.
func (l *local[Q, A]) retire() {
	l.mu.Lock()
	before := l.mu.retired
	l.mu.retired = true
	l.showLocked()
	l.mu.Unlock()
	if before {
		return
	}
	l.rights.metrics.disagreements.WithLabelValues(l.kind).Inc()
	l.rights.log.Error("upstream denies what its rules allow: another authorizer or authenticator of its has a say; "+
		"from now on upstream reviews everything", zap.String("review", l.kind))
}

func (l *local[Q, A]) count(result string) {
	l.rights.metrics.spotChecks.WithLabelValues(l.kind, result).Inc()
}

// provenSince reports that everything that decides is proven, by questions that began after a time.
func (r *LocalAuthorizer) provenSince(after time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var deciding []*PermissionTable
	for _, t := range r.Tables() {
		if t.proves {
			deciding = append(deciding, t)
		}
	}
	at, ok := r.provenLocked(deciding...)
	if r.keys != nil && r.keys.proven.Before(at) {
		at = r.keys.proven
	}
	return ok && at.After(after) && r.counts(at)
}

// changedSince reports that something in the tables has changed after a time.
func (r *LocalAuthorizer) changedSince(t time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed.After(t)
}
