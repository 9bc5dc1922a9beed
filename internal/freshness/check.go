package freshness

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/internal/cache"
)

const (
	// bookmarkTimeout bounds a watch for a bookmark, which upstream is to end after 3 s: a slow one
	// takes a little longer.
	bookmarkTimeout = 5 * time.Second
	// comparedObjectsLimit is how many objects a state may have to be compared. Their metadata is sent
	// sooner than the bookmark, and costs upstream no more than the LIST that a client would have
	// sent. A larger state is never read: an upstream that is slow to send the bookmark would get the
	// more expensive question.
	comparedObjectsLimit = 500
)

// awaitCheck has upstream checked, and returns the first state through R that comes of it, or of
// the mirror's own stream. It gives up when ctx ends, but not before the watch for a bookmark that
// has begun for w has ended.
func (p *Prover) awaitCheck(ctx context.Context, w *proofWaiter) (*cache.Snapshot, error) {
	p.scheduleChecks(w)
	state := p.awaitState(w, ctx.Done())
	if state == nil && p.hasBookmarkBegun(w) {
		state = p.awaitState(w, w.bookmarkEnded)
	}
	if state == nil {
		return nil, errors.Join(context.Cause(ctx), p.failureOf(w))
	}
	return state, nil
}

// awaitState is the first state through R; nil if end closes first.
func (p *Prover) awaitState(w *proofWaiter, end <-chan struct{}) *cache.Snapshot {
	for {
		changed := p.resource.Changed()
		if s := p.snapshotThrough(w.rv); s != nil {
			return s
		}
		select {
		case <-changed:
		case s := <-w.states:
			return s
		case <-end:
			return p.snapshotThrough(w.rv) // it may have come at the same time
		}
	}
}

// snapshotThrough is the current state if it is one through rv, else nil.
func (p *Prover) snapshotThrough(rv uint64) *cache.Snapshot {
	if s := p.resource.Snapshot(); s != nil && s.RV >= rv {
		return s
	}
	return nil
}

// addWaiter registers a waiter for the checks that begin from now on. The answer's connection is
// kept for the next watch for a bookmark, in place of the one that was kept so far: a bookmark at
// the greatest R serves all waiters. Only an answer of the same generation and a greater R stays.
func (p *Prover) addWaiter(answer queryAnswer) *proofWaiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &proofWaiter{rv: answer.rv, states: make(chan *cache.Snapshot, 1), bookmarkEnded: make(chan struct{})}
	p.mu.waiters[w] = struct{}{}
	kept := p.mu.newestAnswer
	if kept.proof != nil && kept.generation == answer.generation && kept.rv > answer.rv {
		answer.proof.Close()
		return w
	}
	p.closeNewestAnswerLocked()
	p.mu.newestAnswer = answer
	return w
}

// scheduleChecks schedules the checks that a waiter needs.
func (p *Prover) scheduleChecks(w *proofWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.bookmarkBegun {
		p.mu.bookmarks.scheduleLocked(p.awaitBookmark)
	}
	p.mu.comparisons.scheduleLocked(p.compareStates)
}

func (p *Prover) removeWaiter(w *proofWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.waiters, w)
	if len(p.mu.waiters) == 0 {
		p.closeNewestAnswerLocked()
	}
}

func (p *Prover) closeNewestAnswerLocked() {
	if p.mu.newestAnswer.proof != nil {
		p.mu.newestAnswer.proof.Close()
		p.mu.newestAnswer = queryAnswer{}
	}
}

func (p *Prover) hasBookmarkBegun(w *proofWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.bookmarkBegun
}

func (p *Prover) failureOf(w *proofWaiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(w.bookmarkErr, w.comparisonErr)
}

// satisfyWaiters hands a state to every waiter whose version it holds.
func (p *Prover) satisfyWaiters(s *cache.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.mu.waiters {
		if w.rv <= s.RV {
			w.states <- s // it has room, because this is its only one
			delete(p.mu.waiters, w)
		}
	}
}

// beginRound begins a scheduled round, and returns when. It reports false if nothing waits for the
// round. It also does if upstream has refused the last round since this one was scheduled: then it
// schedules the check again, for later.
func (p *Prover) beginRound(r *rounds, check func()) (began time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.isScheduled = false
	if !p.resource.IsReady() || !p.isAwaitedLocked() {
		return time.Time{}, false
	}
	now := time.Now()
	if now.Before(r.next) {
		r.scheduleLocked(check)
		return time.Time{}, false
	}
	r.next = now.Add(r.intervalAt(p.cost.averageQueryTime()))
	return now, true
}

// isAwaitedLocked reports that a waiter needs more than the mirror's own stream has delivered.
func (p *Prover) isAwaitedLocked() bool {
	complete := p.resource.CompleteRV()
	for w := range p.mu.waiters {
		if w.rv > complete {
			return true
		}
	}
	return false
}

// awaitBookmark asks upstream for a bookmark, for what waits and was not served by the mirror's own
// stream. Each waiter gets one: a second would be no sooner.
func (p *Prover) awaitBookmark() {
	began, ok := p.beginRound(&p.mu.bookmarks, p.awaitBookmark)
	if !ok {
		return
	}
	answer, waiters := p.takeNewestAnswer()
	if answer.proof == nil {
		return
	}
	err := p.advanceProgress(answer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.bookmarks.noteErrorLocked(began, err)
	for _, w := range waiters {
		w.bookmarkErr = err
		close(w.bookmarkEnded)
	}
}

// takeNewestAnswer takes the answer whose connection is kept, and the waiters that have had no
// watch for a bookmark so far. The answer has no proof if none is kept.
func (p *Prover) takeNewestAnswer() (answer queryAnswer, waiters []*proofWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, p.mu.newestAnswer = p.mu.newestAnswer, queryAnswer{}
	if answer.proof == nil {
		return answer, nil
	}
	for w := range p.mu.waiters {
		if !w.bookmarkBegun {
			w.bookmarkBegun = true
			waiters = append(waiters, w)
		}
	}
	return answer, waiters
}

// compareStates compares a small state with upstream's, and again for what still waits: where a
// balancer splits a connection, the bookmark may come from another API server than R.
func (p *Prover) compareStates() {
	began, ok := p.beginRound(&p.mu.comparisons, p.compareStates)
	if !ok || p.resource.Snapshot().Len() > comparedObjectsLimit {
		return
	}
	p.mu.Lock()
	p.mu.comparisons.scheduleLocked(p.compareStates)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	err := p.compareState(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.comparisons.noteErrorLocked(began, err)
	for w := range p.mu.waiters {
		w.comparisonErr = err
	}
}

// advanceProgress moves progress to a bookmark on a connection whose API server was just made
// current, once the mirror has delivered whatever happened before it. It gives up when the mirror's
// own stream gets there first.
func (p *Prover) advanceProgress(answer queryAnswer) error {
	defer answer.proof.Close()
	began := time.Now()
	watching, stop := context.WithTimeoutCause(context.Background(), bookmarkTimeout, ErrNotProven)
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		if p.resource.AwaitRV(watching, answer.rv) == nil {
			stop()
		}
	})
	defer overtaken.Wait()
	defer stop()
	bookmark, last, err := answer.proof.Prove(watching, p.resource.CompleteRV())
	if err != nil {
		return err
	}
	// The mirror has what is left of a proof's time, and a moment if the answer was late.
	arriving, cancel := context.WithTimeoutCause(context.Background(),
		max(proofTimeout-time.Since(began), comparisonTimeout), ErrNotProven)
	defer cancel()
	if err := p.resource.AwaitRV(arriving, last); err != nil {
		return err
	}
	p.resource.Progress(bookmark, answer.generation)
	return nil
}
