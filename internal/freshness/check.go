package freshness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"spillway/internal/cache"
)

const (
	// bookmarkInterval is how soon one watch for a bookmark may follow another. Such a watch takes up
	// to 1.7 s (W-211 i), so a few overlap while flights keep coming: a new flight waits for the next
	// one, not for the end of this one.
	bookmarkInterval = 250 * time.Millisecond
	// comparisonInterval is the time between two reads of upstream's state, whatever becomes of them.
	// It leaves the next one half of the time that a request has.
	comparisonInterval = proofTimeout / 2
	// comparedObjectsLimit is how many objects a state may have to be compared. Their metadata is sent
	// sooner than the bookmark, and costs upstream no more than the LIST that a client would have
	// sent. A larger state is never read: an upstream that is slow to send the bookmark would get the
	// more expensive question.
	comparedObjectsLimit = 500
)

// proofWaiter is one flight that waits for a state that is complete through rv.
type proofWaiter struct {
	// Static after construction.
	rv        uint64
	satisfied chan *cache.Snapshot

	// Why the last bookmark and the last comparison did not satisfy it.
	bookmarkErr, comparisonErr error
}

// rounds are checks of upstream, each for all flights that wait when it begins. They begin an
// interval apart and may overlap, so one that hangs holds up no other. Prover.mu guards them.
type rounds struct {
	interval  time.Duration // static
	next      time.Time     // when the next one may begin
	scheduled bool          // it has its time
}

// scheduleLocked has the next round begin as soon as it may.
func (r *rounds) scheduleLocked(begin func()) {
	if !r.scheduled {
		r.scheduled = true
		time.AfterFunc(time.Until(r.next), begin)
	}
}

// noteErrorLocked notes the error of a round. After a refusal the next one waits for its
// Retry-After.
func (r *rounds) noteErrorLocked(began time.Time, err error) {
	if again := began.Add(pauseAfter(err)); err != nil && again.After(r.next) {
		r.next = again
	}
}

// awaitCheck has upstream checked, and returns the first state through rv that comes of it, or of
// the mirror's own stream.
func (f *Prover) awaitCheck(ctx context.Context, rv uint64) (*cache.Snapshot, error) {
	w := f.addWaiter(rv)
	defer f.removeWaiter(w)
	for {
		changed := f.resource.Changed()
		if s := f.resource.Snapshot(); s != nil && s.RV >= rv {
			return s, nil
		}
		select {
		case <-changed:
		case s := <-w.satisfied:
			return s, nil
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.failureOf(w))
		}
	}
}

// addWaiter waits for a bookmark and a comparison that begin from now on.
func (f *Prover) addWaiter(rv uint64) *proofWaiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &proofWaiter{rv: rv, satisfied: make(chan *cache.Snapshot, 1)}
	f.mu.waiters[w] = struct{}{}
	f.mu.bookmarks.scheduleLocked(f.awaitBookmark)
	f.mu.comparisons.scheduleLocked(f.compareStates)
	return w
}

func (f *Prover) removeWaiter(w *proofWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.waiters, w)
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
	r.next = began.Add(r.interval)
	return began, true
}

// awaitBookmark asks upstream for a bookmark, for what waits and was not served by the mirror's own
// stream. Each waiter gets one: a second would be no sooner.
func (f *Prover) awaitBookmark() {
	began, waiting := f.beginRound(&f.mu.bookmarks, f.awaitBookmark)
	if !waiting {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	err := f.advanceProgress(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.bookmarks.noteErrorLocked(began, err)
	for w := range f.mu.waiters {
		w.bookmarkErr = err
	}
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
func (f *Prover) advanceProgress(ctx context.Context) error {
	generation, promised := f.resource.Generation(), f.resource.PromisedRV()
	rv, proof, err := f.upstream.Begin(ctx)
	if err != nil {
		return err
	}
	defer proof.Close()
	if rv < promised {
		f.resource.NoteHistoryReset(generation)
		return fmt.Errorf("upstream is at %d, below %d which it has promised", rv, promised)
	}
	watching, stop := context.WithCancel(ctx)
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		if f.resource.AwaitRV(watching, rv) == nil {
			stop()
		}
	})
	defer overtaken.Wait()
	defer stop()
	bookmark, last, err := proof.Prove(watching, f.resource.CompleteRV())
	if err != nil {
		return err
	}
	if err := f.resource.AwaitRV(ctx, last); err != nil {
		return err
	}
	f.resource.Progress(bookmark, generation)
	return nil
}
