package cache

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// comparisons are the reads of upstream's state for waiters. Each serves all that were there before
// it began, so the next one is for those that came later, or for all if it was in vain or hangs.
//
// Invariant: while something waits, the timer runs until the next one is due (comparisonDueLocked),
// or until a time before that, when it looks again. So only what makes one due sooner has to call
// armComparisonLocked: a waiter, a bookmark in vain, the end of a comparison in vain.
type comparisons struct {
	last  time.Time   // when the last one began that was not in vain
	pause time.Time   // when the next one may begin at the earliest
	timer *time.Timer // nil: it has not run yet
}

// comparisonDueLocked is when upstream's state is to be compared; zero if nothing waits for that.
func (f *Freshness) comparisonDueLocked() (due time.Time) {
	state := f.resource.Snapshot()
	if state == nil {
		return due
	}
	c, bookmarks := &f.mu.comparisons, f.prober.Bookmarks()
	interval := comparisonInterval
	if !bookmarks {
		interval = stateReadInterval
	}
	for w := range f.mu.checks.waiters {
		if w.rv <= state.RV {
			continue
		}
		at := w.since
		if bookmarks && !w.inVain && state.Len() > smallState {
			at = at.Add(bookmarkWait)
		}
		next := c.last.Add(interval)
		if half := w.asked.Add(comparisonInterval); c.last.Before(w.since) && half.Before(next) {
			next = half // it has not been served, and must not wait for longer than it can
		}
		if at = latest(at, next, c.pause); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// armComparisonLocked has the next comparison begin when it is due.
func (f *Freshness) armComparisonLocked() {
	due := f.comparisonDueLocked()
	if due.IsZero() {
		return // the timer finds nothing to do
	}
	if c := &f.mu.comparisons; c.timer == nil {
		c.timer = time.AfterFunc(time.Until(due), f.compareNow)
	} else {
		c.timer.Reset(time.Until(due))
	}
}

// compareNow makes the comparison that is due. After one in vain there is a pause, which is not
// shorter than the Retry-After of a refusal, up to maxRefusalPause.
func (f *Freshness) compareNow() {
	begun, due := f.beginComparison()
	if !due {
		return
	}
	err := f.compare()
	if err == nil {
		return
	}
	f.failed(nil, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	c, pause := &f.mu.comparisons, checkInterval
	if !f.prober.Bookmarks() {
		pause = stateReadInterval
	}
	if c.last.Equal(begun) { // else another one has overtaken it
		c.last = time.Time{}
	}
	if after, limited := apierrors.SuggestsClientDelay(err); limited {
		pause = max(pause, min(time.Duration(after)*time.Second, maxRefusalPause))
	}
	c.pause = latest(c.pause, time.Now().Add(pause))
	f.armComparisonLocked()
}

// beginComparison reports false if none is due: the timer was set anew meanwhile, or what waited
// was served. It has the next one begin if this one hangs.
func (f *Freshness) beginComparison() (begun time.Time, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun = time.Now()
	at := f.comparisonDueLocked()
	if due = !at.IsZero() && !at.After(begun); due {
		f.mu.comparisons.last, f.mu.comparisons.pause = begun, begun.Add(checkInterval)
	}
	f.armComparisonLocked()
	return begun, due
}

// compare accepts the present content as upstream's state, if it is. That two states are equal does
// not say that nothing happened between them, so history does not move: it is the content
// alone that is proven.
func (f *Freshness) compare() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	generation, promised := f.resource.Generation(), f.resource.Promised()
	rv, versions, err := f.prober.State(ctx)
	if err != nil {
		return err
	}
	if rv < promised {
		return f.learn(rv, promised, generation)
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
