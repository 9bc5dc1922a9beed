package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"spillway/internal/fairness"
)

const (
	// reviewTimeout bounds one review.
	reviewTimeout = 5 * time.Second
	// turnTimeout bounds the wait for its turn: as long as a request waits for its turn in kube-apiserver.
	turnTimeout = 15 * time.Second
)

var (
	// ErrBusy is why there is no answer to a question that had no turn in time. Whoever asks it had better come back later than go to
	// upstream himself: it is asked as much as it may be.
	ErrBusy    = errors.New("too many reviews are under way")
	errCrashed = errors.New("BUG: a review panicked")
)

// reviews asks upstream questions of one kind and remembers the answers for a moment. Who asks what is being asked already waits for that
// answer. Good answers and bad ones are remembered apart, so that made-up tokens cannot push out those that are in use.
//
// Whoever asks first carries the question out himself and stays with it even if his client has gone, since others may wait for it: so
// there are never more goroutines than requests.
type reviews[Q, A any] struct {
	// Static after construction.
	ask   func(context.Context, Q) (A, error)
	good  func(A) bool
	until func(answer[A]) time.Time // how long an answer counts
	clock clock.PassiveClock
	turns *fairness.Gate // of reviews under way
	user  func(Q) string // shares the turns; "" if the user is what is asked for
	count func(source)   // of answers, for metrics
	local *local[Q, A]   // nil: upstream answers everything

	mu struct {
		sync.Mutex
		good, bad *memory[A]
		flights   map[digest]*flight[A]
	}
}

// source is where an answer came from.
type source string

const (
	fromLocal  source = "local"
	fromMemory source = "memory"
	fromFlight source = "shared"
	fromReview source = "review"
)

// flight is a review under way. answer is set before done is closed.
type flight[A any] struct {
	done   chan struct{}
	answer answer[A]
}

// bounds are how much of something there may be at once.
type bounds struct {
	remembered int // answers of each sort
	underWay   int // reviews
	each       int // of those, of one user; 0: all
}

// maxWaitingReviews bounds the reviews that wait for a turn. Beyond it the user with most of them loses one.
const maxWaitingReviews = 1 << 16

func newReviews[Q, A any](b bounds, clock clock.PassiveClock) *reviews[Q, A] {
	turns := fairness.NewGate(fairness.Options{
		Limit: int64(b.underWay), Share: int64(b.each), Waiting: maxWaitingReviews, WaitingEach: maxWaitingReviews,
		Wait: turnTimeout,
	})
	r := &reviews[Q, A]{clock: clock, turns: turns, user: func(Q) string { return "" }, count: func(source) {}}
	r.mu.good, r.mu.bad = newMemory[A](b.remembered), newMemory[A](b.remembered)
	r.mu.flights = map[digest]*flight[A]{}
	return r
}

// answer is upstream's answer, at most as old as such an answer counts. ctx ends the wait for somebody else's review, not one's own.
func (r *reviews[Q, A]) answer(ctx context.Context, key digest, q Q) answer[A] {
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
		return answer[A]{err: ctx.Err(), at: r.clock.Now()}
	}
}

// fly carries out a review that others may wait for.
func (r *reviews[Q, A]) fly(ctx context.Context, key digest, q Q, f *flight[A]) {
	f.answer = answer[A]{err: errCrashed, at: r.clock.Now()}
	defer func() {
		r.mu.Lock()
		delete(r.mu.flights, key)
		r.mu.Unlock()
		close(f.done)
	}()
	ctx = context.WithoutCancel(ctx)
	turn, refusal := r.turns.Admit(ctx, fairness.UserFlow(r.user(q)), 1)
	if refusal != nil {
		f.answer.err = ErrBusy
		return
	}
	defer turn.Release()
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	f.answer = r.send(ctx, key, q)
}

// known is what is known here without upstream, unless upstream has said something since.
func (r *reviews[Q, A]) known(key digest, q Q) (answer[A], bool) {
	here, ok := r.local.ask(key, q)
	if !ok {
		return here, false
	}
	there, ok := r.recall(key)
	return here, !ok || there.err != nil || !there.at.After(here.at)
}

// renew asks now, whatever is remembered: upstream, unless it is known here.
func (r *reviews[Q, A]) renew(ctx context.Context, key digest, q Q) answer[A] {
	if a, ok := r.known(key, q); ok {
		return a
	}
	return r.review(ctx, key, q)
}

// review asks upstream now, and without a turn: who asks so bounds that himself, so that no herd of new requests can keep those waiting
// who are let in already.
func (r *reviews[Q, A]) review(ctx context.Context, key digest, q Q) answer[A] {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return r.send(ctx, key, q)
}

// send asks, and remembers the answer. What upstream said to a later question counts instead; that it said nothing takes nothing back.
func (r *reviews[Q, A]) send(ctx context.Context, key digest, q Q) answer[A] {
	a := answer[A]{at: r.clock.Now()}
	a.value, a.err = r.ask(ctx, q)
	until, now := r.until(a), r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.recallLocked(key)
	switch {
	case a.err != nil:
		if !ok && !errors.Is(a.err, context.Canceled) {
			r.mu.bad.note(key, a, until, now)
		}
		return a
	case ok && last.err == nil && last.at.After(a.at):
		return last
	}
	to, other := r.mu.bad, r.mu.good
	if r.good(a.value) {
		to, other = other, to
	}
	other.forget(key)
	to.note(key, a, until, now)
	return a
}

// recall is the answer that is remembered.
func (r *reviews[Q, A]) recall(key digest) (answer[A], bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recallLocked(key)
}

func (r *reviews[Q, A]) recallLocked(key digest) (answer[A], bool) {
	now := r.clock.Now()
	if a, ok := r.mu.good.recall(key, now); ok {
		return a, true
	}
	return r.mu.bad.recall(key, now)
}
