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
	// large. Bookmarks come within 1.7 s (W-111).
	bookmarkWait = 2 * time.Second
	// comparisonInterval is the time between two comparisons that prove something: requests that
	// arrive together cost one, and the bookmark, or the next one, does for those after it. It leaves
	// that one half of the time that a request has.
	comparisonInterval = proofTimeout / 2
	// maxRefusalPause is how long a refused comparison keeps others from beginning at most: what
	// stands before upstream may ask for an hour, and mend in a minute. Mirrors wait as long.
	maxRefusalPause = 8 * time.Second
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
}

// proofWaiter is one flight that waits for a state that is complete through rv.
type proofWaiter struct {
	// Static after construction.
	rv        uint64
	asked     time.Time // when its flight began
	since     time.Time // when it began to wait
	satisfied chan *Snapshot

	inVain bool // a check that began after it has brought no bookmark that does
	// Why the last bookmark and the last comparison did not satisfy it.
	bookmarkErr, comparisonErr error
}

// checked has upstream checked, and returns the first state through rv that comes of it, or of the
// mirror's own stream.
func (f *Freshness) checked(ctx context.Context, rv uint64, asked time.Time) (*Snapshot, error) {
	c := f.addWaiter(rv, asked)
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

// addWaiter waits for a check and a comparison that begin from now on.
func (f *Freshness) addWaiter(rv uint64, asked time.Time) *proofWaiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &proofWaiter{rv: rv, asked: asked, since: time.Now(), satisfied: make(chan *Snapshot, 1)}
	f.mu.checks.waiters[c] = struct{}{}
	if !f.mu.checks.due && f.prober.Bookmarks() {
		f.mu.checks.due = true
		time.AfterFunc(checkInterval-time.Since(f.mu.checks.begun), f.check)
	}
	f.armComparisonLocked()
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
	return errors.Join(c.bookmarkErr, c.comparisonErr)
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

// check asks upstream for a bookmark, if there is something to prove and the mirror's own stream
// was not sooner. The state is compared meanwhile if it is small, and if the bookmark is late or in
// vain: behind a balancer that splits a connection it may come from another apiserver than R. The
// bookmark is worth having in any case, since it moves history along.
func (f *Freshness) check() {
	begun, due := f.beginCheck()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	f.failed(f.advance(ctx), nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.checks.waiters {
		c.inVain = c.inVain || !c.since.After(begun)
	}
	f.armComparisonLocked()
}

func (f *Freshness) beginCheck() (begun time.Time, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun = time.Now()
	f.mu.checks.due, f.mu.checks.begun = false, begun
	through := f.resource.Through()
	for c := range f.mu.checks.waiters {
		due = due || c.rv > through
	}
	return begun, due && f.resource.Ready()
}

// failed records errors for the waiters that are not satisfied; nil leaves those before.
func (f *Freshness) failed(bookmark, comparison error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.checks.waiters {
		if bookmark != nil {
			c.bookmarkErr = bookmark
		}
		if comparison != nil {
			c.comparisonErr = comparison
		}
	}
}

// advance moves progress to a bookmark on a connection whose apiserver was just made current, once
// the mirror has delivered whatever happened before it. It gives up when the mirror's own stream
// gets there first.
func (f *Freshness) advance(ctx context.Context) error {
	generation, promised := f.resource.Generation(), f.resource.Promised()
	rv, proof, err := f.prober.Begin(ctx)
	if err != nil {
		return err
	}
	defer proof.Close()
	if rv < promised {
		f.resource.Disown(generation)
		return fmt.Errorf("upstream is at %d, below %d which it has promised", rv, promised)
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
