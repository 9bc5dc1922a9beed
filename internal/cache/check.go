package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// checkInterval is how soon one check of upstream may follow another. A check takes up to 1.7 s
	// (W-211 i), so a few overlap while flights keep coming: a new flight waits for the next check,
	// not for the end of this one.
	checkInterval = 250 * time.Millisecond
	// smallState is how many objects a state may have to be compared at once: their metadata is then
	// sent sooner than the bookmark, and costs upstream no more than the LIST that a client would have
	// sent.
	smallState = 500
	// bookmarkWait is how long a check waits for the bookmark before it compares a state that is
	// large, or that was compared less than this ago. Bookmarks come within 1.7 s (W-111).
	bookmarkWait = 2 * time.Second
	// comparison is how long the mirror's own stream may take to get to the state that it is compared
	// with.
	comparison = 500 * time.Millisecond
)

// errDiffers says that the mirror does not hold what upstream holds, and did not come to.
var errDiffers = errors.New("the cache differs from upstream's state")

// checks are the flights whose R the mirror's own stream did not reach by itself, and the checks of
// upstream that are made for them. A check says how far history is complete, or that the present
// content is upstream's. It satisfies every waiter that this suffices for, not only the one that
// it was made for.
type checks struct {
	waiters map[*proofWaiter]struct{}
	due     bool      // one is to begin
	begun   time.Time // the last one
	// compared is when a check last began to read upstream's state, unless that was in vain.
	compared time.Time
}

// proofWaiter is one flight that waits for a state that is complete through rv.
type proofWaiter struct {
	rv        uint64
	satisfied chan *Snapshot
	err       error // of the last check
}

// checked has upstream checked, and returns the first state through rv that comes of it, or of the
// mirror's own stream.
func (f *Freshness) checked(ctx context.Context, rv uint64) (*Snapshot, error) {
	c := f.addWaiter(rv)
	defer f.removeWaiter(c)
	for {
		changed := f.resource.Changed()
		if s := f.resource.Snapshot(); s != nil && s.RV >= rv {
			return s, nil
		}
		select {
		case <-changed:
		case s := <-c.satisfied:
			return s, nil
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.failure(c))
		}
	}
}

// addWaiter waits for a check that begins from now on.
func (f *Freshness) addWaiter(rv uint64) *proofWaiter {
	c := &proofWaiter{rv: rv, satisfied: make(chan *Snapshot, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.checks.waiters[c] = struct{}{}
	if !f.mu.checks.due {
		f.mu.checks.due = true
		pause := checkInterval
		if !f.prober.Bookmarks() {
			pause = stateReadInterval
		}
		time.AfterFunc(pause-time.Since(f.mu.checks.begun), f.check)
	}
	return c
}

func (f *Freshness) removeWaiter(c *proofWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.checks.waiters, c)
}

func (f *Freshness) failure(c *proofWaiter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return c.err
}

// satisfy hands a state to every waiter whose version it holds.
func (f *Freshness) satisfy(s *Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.checks.waiters {
		if c.rv <= s.RV {
			c.satisfied <- s // it has room, and is offered no second
			delete(f.mu.checks.waiters, c)
		}
	}
}

// hasPending reports whether the version of a waiter is beyond what history is complete through.
func (f *Freshness) hasPending() bool {
	through := f.resource.Through()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.checks.waiters {
		if c.rv > through {
			return true
		}
	}
	return false
}

// check asks upstream for what the waiters need: for its state alone, if no bookmark is to be
// expected. Otherwise the state is compared while the bookmark is on its way, or if that is late or
// in vain: behind a balancer that splits a connection it may come from another apiserver than R.
// The bookmark is worth having in any case, since it moves history along.
func (f *Freshness) check() {
	begun := time.Now()
	f.mu.Lock()
	f.mu.checks.due, f.mu.checks.begun = false, begun
	f.mu.Unlock()
	if !f.resource.Ready() || !f.hasPending() {
		return // there is nothing to prove, or the mirror's own stream was sooner
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	if !f.prober.Bookmarks() {
		f.failed(f.compare(ctx))
		return
	}
	var both sync.WaitGroup
	var compared error
	advanced := make(chan struct{})
	both.Go(func() {
		if !f.comparesAtOnce() {
			awaitBookmark(advanced)
		}
		if f.hasPending() && !f.comparedSince(begun) {
			compared = f.compare(ctx)
		}
	})
	err := f.advance(ctx)
	close(advanced)
	both.Wait()
	f.failed(errors.Join(err, compared))
}

// comparesAtOnce reports that the state is small, and none was read lately: requests that arrive
// together cost one read, and the bookmark does for those after it.
func (f *Freshness) comparesAtOnce() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resource.Snapshot().Len() <= smallState && time.Since(f.mu.checks.compared) >= bookmarkWait
}

// comparedSince reports that a state was read that a check which began then need not read again.
func (f *Freshness) comparedSince(begun time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.checks.compared.After(begun)
}

// awaitBookmark returns when a bookmark has come or was in vain, or is not to be expected any more.
func awaitBookmark(advanced <-chan struct{}) {
	timer := time.NewTimer(bookmarkWait)
	defer timer.Stop()
	select {
	case <-advanced:
	case <-timer.C:
	}
}

// failed records the error of a check for the waiters that it did not satisfy.
func (f *Freshness) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.checks.waiters {
		c.err = err
	}
}

// advance moves progress to a bookmark on a connection whose apiserver was just made current, once
// the mirror has delivered whatever happened before it. It gives up when the mirror's own stream
// gets there first.
func (f *Freshness) advance(ctx context.Context) error {
	generation, through := f.resource.Generation(), f.resource.Through()
	rv, proof, err := f.prober.Begin(ctx)
	if err != nil {
		return err
	}
	defer proof.Close()
	if rv < through {
		f.resource.Disown(generation)
		return fmt.Errorf("upstream is at %d, below %d which it has promised", rv, through)
	}
	watching, stop := context.WithCancel(ctx)
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		if f.resource.WaitThrough(watching, rv) == nil {
			stop()
		}
	})
	defer overtaken.Wait()
	defer stop()
	bookmark, last, err := proof.Prove(watching, f.resource.Through())
	if err != nil {
		return err
	}
	if err := f.resource.WaitThrough(ctx, last); err != nil {
		return err
	}
	f.resource.Progress(bookmark, generation)
	return nil
}

// compare accepts the present content as upstream's state, if it is. That two states are equal does
// not say that nothing happened between them, so history does not move: it is the content
// alone that is proven. A comparison in vain does not keep another check from its own.
func (f *Freshness) compare(ctx context.Context) error {
	begun := time.Now()
	f.mu.Lock()
	f.mu.checks.compared = begun
	f.mu.Unlock()
	err := f.compareState(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.mu.checks.compared.Equal(begun) {
		f.mu.checks.compared = time.Time{}
	}
	return err
}

func (f *Freshness) compareState(ctx context.Context) error {
	generation, through := f.resource.Generation(), f.resource.Through()
	rv, versions, err := f.prober.State(ctx)
	if err != nil {
		return err
	}
	if rv < through {
		return f.learn(rv, through, generation)
	}
	s, err := f.match(ctx, generation, rv, versions)
	if err == nil {
		f.resource.Seen(rv, generation)
		f.satisfy(s)
	}
	return err
}

// match waits until the mirror holds upstream's state at rv, or is past it.
func (f *Freshness) match(ctx context.Context, generation, rv uint64, versions map[string]uint64) (*Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, comparison, errDiffers)
	defer cancel()
	for {
		changed := f.resource.Changed()
		s := f.resource.Snapshot()
		switch {
		case s == nil || s.generation != generation:
			return nil, errDiffers
		case s.RV >= rv:
			return s, nil
		case s.holds(versions):
			return s.provenAt(rv), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
