package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"spillway/internal/flowcontrol"
)

const (
	// reviewTimeout bounds one review.
	reviewTimeout = 5 * time.Second
	// turnTimeout bounds the wait for its turn: as long as a request waits for its turn in
	// kube-apiserver.
	turnTimeout = 15 * time.Second
)

var (
	// ErrBusy is why there is no answer to a question that had no turn in time. The client has to
	// send the request again later, and not to upstream, which has as many questions as it may
	// have.
	ErrBusy    = errors.New("too many reviews are under way")
	errCrashed = errors.New("BUG: a review panicked")
)

// reviews asks upstream questions of one kind and remembers the answers for a moment. A question
// that is under way already is not sent again: it waits for that answer. Good answers and bad ones
// are remembered apart, so that made-up tokens cannot push out those that are in use.
//
// The first request carries the question out itself and stays with it even if its client has gone,
// since others may wait for it: so there are never more goroutines than requests.
type reviews[Q, A any] struct {
	// Static after construction.
	ask   func(context.Context, Q) (A, error)
	good  func(A) bool
	until func(Answer[A]) time.Time // how long an answer counts
	clock clock.PassiveClock
	turns *flowcontrol.Gate // of reviews under way
	user  func(Q) string    // shares the turns; "" if the review is to find the user
	count func(source)      // of answers, for metrics
	local DecideFunc[Q, A]  // nil: upstream answers everything

	mu struct {
		sync.Mutex
		good, bad *AnswerCache[A]
		flights   map[Digest]*flight[A]
	}
}

// source is where an answer came from.
type source string

const (
	fromLocal  source = "local"
	fromMemory source = "memory"
	fromFlight source = "shared"
	fromReview source = "upstream"
)

// flight is a review under way. answer is set before done is closed.
type flight[A any] struct {
	done   chan struct{}
	answer Answer[A]
}

// bounds are how much of something there may be at once.
type bounds struct {
	remembered int // answers of each sort
	underWay   int // reviews
	each       int // of those, of one user; 0: all
}

// maxWaitingReviews bounds the reviews that wait for a turn. Beyond it the user with most of them
// loses one.
const maxWaitingReviews = 1 << 16

func newReviews[Q, A any](b bounds, clock clock.PassiveClock) *reviews[Q, A] {
	turns := flowcontrol.NewGate(flowcontrol.Options{
		Limit: int64(b.underWay), Share: int64(b.each), Waiting: maxWaitingReviews, WaitingEach: maxWaitingReviews,
		Wait: turnTimeout,
	})
	r := &reviews[Q, A]{clock: clock, turns: turns, user: func(Q) string { return "" }, count: func(source) {}}
	r.mu.good, r.mu.bad = NewAnswerCache[A](b.remembered), NewAnswerCache[A](b.remembered)
	r.mu.flights = map[Digest]*flight[A]{}
	return r
}

// answer is upstream's answer, at most as old as such an answer counts. ctx ends the wait for
// another request's review, not one's own.
func (r *reviews[Q, A]) answer(ctx context.Context, key Digest, q Q) Answer[A] {
	if a, ok := r.known(key, q); ok {
		r.count(fromLocal)
		return a
	}
	r.mu.Lock()
	if a, ok := r.recallLocked(key); ok {
		r.mu.Unlock()
		r.count(fromMemory)
		return a
	}
	f, underWay := r.mu.flights[key]
	if !underWay {
		f = &flight[A]{done: make(chan struct{})}
		r.mu.flights[key] = f
	}
	r.mu.Unlock()
	if !underWay {
		r.fly(ctx, key, q, f)
		r.count(fromReview)
		return f.answer
	}
	select {
	case <-f.done:
		r.count(fromFlight)
		return f.answer
	case <-ctx.Done():
		return Answer[A]{Err: ctx.Err(), At: r.clock.Now()}
	}
}

// fly carries out a review that others may wait for.
func (r *reviews[Q, A]) fly(ctx context.Context, key Digest, q Q, f *flight[A]) {
	f.answer = Answer[A]{Err: errCrashed, At: r.clock.Now()}
	defer func() {
		r.mu.Lock()
		delete(r.mu.flights, key)
		r.mu.Unlock()
		close(f.done)
	}()
	ctx = context.WithoutCancel(ctx)
	turn, refusal := r.turns.Admit(ctx, flowcontrol.UserFlow(r.user(q)), 1)
	if refusal != nil {
		f.answer.Err = ErrBusy
		return
	}
	defer turn.Release()
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	f.answer = r.send(ctx, key, q)
}

// known is what is known here without upstream, unless upstream has said something since.
func (r *reviews[Q, A]) known(key Digest, q Q) (Answer[A], bool) {
	if r.local == nil {
		return Answer[A]{}, false
	}
	here, ok := r.local(key, q)
	if !ok {
		return here, false
	}
	there, ok := r.recall(key)
	return here, !ok || there.Err != nil || !there.At.After(here.At)
}

// renew asks now, whatever is remembered: upstream, unless it is known here.
func (r *reviews[Q, A]) renew(ctx context.Context, key Digest, q Q) Answer[A] {
	if a, ok := r.known(key, q); ok {
		return a
	}
	return r.review(ctx, key, q)
}

// review asks upstream now, and without a turn: callers bound that themselves, so that no herd of
// new requests delays the checks of watches that are admitted already.
func (r *reviews[Q, A]) review(ctx context.Context, key Digest, q Q) Answer[A] {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return r.send(ctx, key, q)
}

// send asks, and remembers the answer. What upstream said to a later question counts instead; that
// it said nothing takes nothing back.
func (r *reviews[Q, A]) send(ctx context.Context, key Digest, q Q) Answer[A] {
	a := Answer[A]{At: r.clock.Now()}
	a.Value, a.Err = r.ask(ctx, q)
	until, now := r.until(a), r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.recallLocked(key)
	switch {
	case a.Err != nil:
		if !ok && !errors.Is(a.Err, context.Canceled) {
			r.mu.bad.Note(key, a, until, now)
		}
		return a
	case ok && last.Err == nil && last.At.After(a.At):
		return last
	}
	to, other := r.mu.bad, r.mu.good
	if r.good(a.Value) {
		to, other = other, to
	}
	other.Forget(key)
	to.Note(key, a, until, now)
	return a
}

// recall is the answer that is remembered.
func (r *reviews[Q, A]) recall(key Digest) (Answer[A], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recallLocked(key)
}

func (r *reviews[Q, A]) recallLocked(key Digest) (Answer[A], bool) {
	now := r.clock.Now()
	if a, ok := r.mu.good.Recall(key, now); ok {
		return a, true
	}
	return r.mu.bad.Recall(key, now)
}
