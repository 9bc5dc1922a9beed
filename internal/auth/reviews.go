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
	// waitingReviewsLimit bounds the reviews that wait for a turn. Beyond it the user with most of
	// them loses one.
	waitingReviewsLimit = 1 << 16
)

var (
	// ErrBusy is why there is no answer to a question that had no turn in time. The client has to send
	// the request again later, and not to the API server, which has as many questions as it may have.
	ErrBusy    = errors.New("too many reviews are under way")
	errCrashed = errors.New("BUG: a review panicked")
)

// reviewsOptions configure reviews.
type reviewsOptions[Q, A any] struct {
	bounds
	ask    func(context.Context, Q) (A, error) // sends one review
	isGood func(A) bool
	until  func(Answer[A]) time.Time // how long an answer counts
	user   func(Q) string            // shares the turns; "": unknown
	count  func(source)              // counts answers
	clock  clock.PassiveClock
	// newLocal makes what answers questions without the API server, and has some of them reviewed;
	// nil, or if it returns nil: the API server answers everything.
	newLocal func(ReviewFunc[Q, A]) DecideFunc[Q, A]
}

// bounds are how much of something there may be at once.
type bounds struct {
	remembered int // answers, of good and bad ones each
	underWay   int // reviews
	each       int // of those, of one user; 0: all
}

// reviews asks the API server questions of one kind and remembers the answers for a moment. A
// question that is under way already is not sent again: it waits for that answer. Good answers and
// bad ones are remembered apart, so that made-up tokens cannot push out those that are in use.
//
// The first request sends the review itself. It does so to the end even if its client has gone,
// because others may wait for the answer: so there are never more goroutines than requests.
type reviews[Q, A any] struct {
	// Static after construction.
	reviewsOptions[Q, A]
	turns *flowcontrol.Gate // of reviews under way
	local DecideFunc[Q, A]  // nil: the API server answers everything

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

func newReviews[Q, A any](o reviewsOptions[Q, A]) *reviews[Q, A] {
	r := &reviews[Q, A]{reviewsOptions: o, turns: flowcontrol.NewGate(flowcontrol.Options{
		Limit: int64(o.underWay), Share: int64(o.each), Waiting: waitingReviewsLimit, WaitingEach: waitingReviewsLimit,
		Wait: turnTimeout,
	})}
	r.mu.good, r.mu.bad = NewAnswerCache[A](o.remembered), NewAnswerCache[A](o.remembered)
	r.mu.flights = map[Digest]*flight[A]{}
	if o.newLocal != nil {
		r.local = o.newLocal(r.review)
	}
	return r
}

// answer is the answer to a question, from memory if it still counts. ctx ends the wait for another
// request's review, but no review.
func (r *reviews[Q, A]) answer(ctx context.Context, key Digest, q Q) Answer[A] {
	if a, ok := r.decideLocally(key, q); ok {
		r.count(fromLocal)
		return a
	}
	r.mu.Lock()
	if a, ok := r.recallLocked(key); ok {
		r.mu.Unlock()
		r.count(fromMemory)
		return a
	}
	f, isUnderWay := r.mu.flights[key]
	if !isUnderWay {
		f = &flight[A]{done: make(chan struct{})}
		r.mu.flights[key] = f
	}
	r.mu.Unlock()
	if !isUnderWay {
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

// fly sends a review that others may wait for, once it has its turn.
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
	f.answer = r.review(ctx, key, q)
}

// decideLocally answers a question without the API server, unless the API server has answered it
// since.
func (r *reviews[Q, A]) decideLocally(key Digest, q Q) (Answer[A], bool) {
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

// renew is the answer to a question now, whatever is remembered: the API server's, unless it is
// decided locally.
func (r *reviews[Q, A]) renew(ctx context.Context, key Digest, q Q) Answer[A] {
	if a, ok := r.decideLocally(key, q); ok {
		r.count(fromLocal)
		return a
	}
	a := r.review(ctx, key, q)
	r.count(fromReview)
	return a
}

// review sends a review now and without a turn, and remembers the answer. Callers bound the reviews
// that they have under way: so no herd of new requests delays the checks of running watches. An
// answer to a later question counts instead, but that the API server did not answer changes
// nothing.
func (r *reviews[Q, A]) review(ctx context.Context, key Digest, q Q) Answer[A] {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
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
	if r.isGood(a.Value) {
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
