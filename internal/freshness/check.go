package freshness

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/internal/cache"
)

const (
	// bookmarkTimeout bounds such a watch, which upstream is to end after 3 s: a slow one takes a
	// little longer.
	bookmarkTimeout = 5 * time.Second
	// comparedObjectsLimit is how many objects a state may have to be compared. Their metadata is sent
	// sooner than the bookmark, and costs upstream no more than the LIST that a client would have
	// sent. A larger state is never read: an upstream that is slow to send the bookmark would get the
	// more expensive question.
	comparedObjectsLimit = 500
)

// awaitCheck has upstream checked, and returns the first state through R that comes of it, or of
// the mirror's own stream. It gives up when ctx ends, but not before upstream has answered.
func (f *Prover) awaitCheck(ctx context.Context, w *proofWaiter) (*cache.Snapshot, error) {
	f.schedule(w)
	over := ctx.Done()
	for {
		changed, ended := f.resource.Changed(), over == nil
		if s := f.resource.Snapshot(); s != nil && s.RV >= w.rv {
			return s, nil
		}
		if ended {
			return nil, errors.Join(context.Cause(ctx), f.failureOf(w))
		}
		select {
		case <-changed:
		case s := <-w.satisfied:
			return s, nil
		case <-over:
			over = f.owed(w, over)
		}
	}
}

// addWaiter has a waiter served by the watches for a bookmark and the comparisons that begin from
// now on. Of the connections of all that wait, one is kept for the next watch: that of the greatest
// R, which serves all.
func (f *Prover) addWaiter(q revision) *proofWaiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &proofWaiter{rv: q.rv, satisfied: make(chan *cache.Snapshot, 1), answered: make(chan struct{})}
	f.mu.waiters[w] = struct{}{}
	if kept := f.mu.newest; kept.proof != nil && kept.generation == q.generation && kept.rv > q.rv {
		q.proof.Close()
	} else {
		f.closeNewestLocked()
		f.mu.newest = q
	}
	return w
}

// schedule has the checks begin that a waiter needs.
func (f *Prover) schedule(w *proofWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !w.asked {
		f.mu.bookmarks.scheduleLocked(f.awaitBookmark)
	}
	f.mu.comparisons.scheduleLocked(f.compareStates)
}

func (f *Prover) removeWaiter(w *proofWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.waiters, w)
	if len(f.mu.waiters) == 0 {
		f.closeNewestLocked()
	}
}

func (f *Prover) closeNewestLocked() {
	if f.mu.newest.proof != nil {
		f.mu.newest.proof.Close()
		f.mu.newest = revision{}
	}
}

// owed is what a waiter whose time is over waits for: the end of its watch for a bookmark. nil: it
// has ended, or none has begun.
func (f *Prover) owed(w *proofWaiter, over <-chan struct{}) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !w.asked || over == w.answered {
		return nil
	}
	return w.answered
}

func (f *Prover) failureOf(w *proofWaiter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(w.bookmarkErr, w.comparisonErr)
}

// satisfyWaiters hands a state to every waiter whose version it holds.
func (f *Prover) satisfyWaiters(s *cache.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.mu.waiters {
		if w.rv <= s.RV {
			w.satisfied <- s // it has room, and is offered no second
			delete(f.mu.waiters, w)
		}
	}
}

// beginRound begins a round. It reports false if nothing waits for it, or if it is to begin later.
func (f *Prover) beginRound(r *rounds, begin func()) (began time.Time, waiting bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	began, r.scheduled = time.Now(), false
	through := f.resource.CompleteRV()
	for w := range f.mu.waiters {
		waiting = waiting || w.rv > through
	}
	switch {
	case !waiting || !f.resource.IsReady():
		return began, false
	case began.Before(r.next): // upstream has refused the last one meanwhile
		r.scheduleLocked(begin)
		return began, false
	}
	r.next = began.Add(r.intervalAt(f.cost.averageQueryTime()))
	return began, true
}

// awaitBookmark asks upstream for a bookmark, for what waits and was not served by the mirror's own
// stream. Each waiter gets one: a second would be no sooner.
func (f *Prover) awaitBookmark() {
	began, waiting := f.beginRound(&f.mu.bookmarks, f.awaitBookmark)
	if !waiting {
		return
	}
	newest, asked := f.takeNewest()
	if newest.proof == nil {
		return
	}
	err := f.advanceProgress(newest)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.bookmarks.noteErrorLocked(began, err)
	for _, w := range asked {
		w.bookmarkErr = err
		close(w.answered)
	}
}

// takeNewest takes the connection that is kept, and what has waited for a bookmark so far. The
// proof is nil if there is none.
func (f *Prover) takeNewest() (newest revision, asked []*proofWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	newest, f.mu.newest = f.mu.newest, revision{}
	for w := range f.mu.waiters {
		if newest.proof != nil && !w.asked {
			w.asked = true
			asked = append(asked, w)
		}
	}
	return newest, asked
}

// compareStates compares a small state with upstream's, and again for what still waits: where a
// balancer splits a connection, the bookmark may come from another apiserver than R.
func (f *Prover) compareStates() {
	began, waiting := f.beginRound(&f.mu.comparisons, f.compareStates)
	if !waiting || f.resource.Snapshot().Len() > comparedObjectsLimit {
		return
	}
	f.mu.Lock()
	f.mu.comparisons.scheduleLocked(f.compareStates)
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	err := f.compareState(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.comparisons.noteErrorLocked(began, err)
	for w := range f.mu.waiters {
		w.comparisonErr = err
	}
}

// advanceProgress moves progress to a bookmark on a connection whose apiserver was just made
// current, once the mirror has delivered whatever happened before it. It gives up when the mirror's
// own stream gets there first.
func (f *Prover) advanceProgress(q revision) error {
	defer q.proof.Close()
	began := time.Now()
	watching, stop := context.WithTimeoutCause(context.Background(), bookmarkTimeout, ErrNotProven)
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		if f.resource.AwaitRV(watching, q.rv) == nil {
			stop()
		}
	})
	defer overtaken.Wait()
	defer stop()
	bookmark, last, err := q.proof.Prove(watching, f.resource.CompleteRV())
	if err != nil {
		return err
	}
	// The mirror has what is left of a proof's time, and a moment if the answer was late.
	arriving, cancel := context.WithTimeoutCause(context.Background(),
		max(proofTimeout-time.Since(began), comparisonTimeout), ErrNotProven)
	defer cancel()
	if err := f.resource.AwaitRV(arriving, last); err != nil {
		return err
	}
	f.resource.Progress(bookmark, q.generation)
	return nil
}
