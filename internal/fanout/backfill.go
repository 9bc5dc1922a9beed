package fanout

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// Backfill is one client that is told of the past: what upstream says up to where the log goes on. One goroutine uses it.
//
// It is upstream's own watch that the client sees: its events, its bytes, in its order. The one thing that is decided here is where that
// ends, and there is no doubt about it: an event above the target, or a bookmark at or above it, says that all up to the target has been
// told; and what is above the target, the log has. If the log no longer reaches back to the target by then, the target is where it does.
type Backfill struct {
	// Static after construction.
	backfills *Backfills
	owner     Owner
	voids     uint64 // of the log, when it began
	selector  object.Selector

	// The client's goroutine's.
	told     *retelling // nil: none yet, or the last one was of no use any more
	next     uint64     // number of the first item of told that was not looked at
	through  uint64     // what the client is complete through
	target   uint64     // what it has to be complete through before the log goes on
	lapped   int        // how often it did not keep up
	failed   int        // how often in a row upstream did not answer
	scratch  []byte
	encoding object.Encoding // of scratch

	refused *cache.ExpiredError // guarded by told.mu: upstream does not remember what the client lacks
}

const (
	// maxLaps is how often a client may not keep up before it has to come back later.
	maxLaps = 3
	// firstPause and lastPause are how long a client waits before upstream is asked again after it failed.
	firstPause, lastPause = 500 * time.Millisecond, 15 * time.Second
)

// Close lets others go on without the client. Idempotent.
func (f *Backfill) Close() {
	if f.told != nil {
		f.told.leave(f)
		f.told = nil
	}
}

// Next waits for the frames that follow, ready to send and valid until the next call; or it returns the cursor that goes on from
// where the past ends, which is the end of the Backfill. An error is a cache.ExpiredError: upstream cannot tell either; ErrUnencodable;
// ErrBackfillBusy or ErrBackfillBehind: the client can go on from where it is, at another time; or the cause of ctx's end.
func (f *Backfill) Next(ctx context.Context, enc object.Encoding) ([]byte, *Cursor, error) {
	f.scratch, f.encoding = f.scratch[:0], enc
	for {
		cursor, err := f.step(ctx)
		switch {
		case len(f.scratch) > 0 && (cursor != nil || err != nil):
			// What was told before comes first; the same will be found again.
			if cursor != nil {
				cursor.Close()
			}
			return f.scratch, nil, nil
		case cursor != nil || err != nil:
			return nil, cursor, err
		case len(f.scratch) > 0:
			return f.scratch, nil, nil
		}
	}
}

// step looks at what there is, and waits if there is nothing.
func (f *Backfill) step(ctx context.Context) (*Cursor, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if f.told == nil {
		return f.again(ctx)
	}
	items, changed, end := f.told.from(f)
	for _, i := range items {
		cursor, err := f.hear(i)
		if cursor != nil || err != nil || len(f.scratch) >= replayRun {
			return cursor, err
		}
	}
	switch {
	case len(items) > 0 || len(f.scratch) > 0:
		return nil, nil
	case end != nil:
		return nil, f.ended(end)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return nil, nil
}

// hear takes one item. Once it says that all up to the target has been told, the cursor goes on from there.
func (f *Backfill) hear(i item) (*Cursor, error) {
	complete := i.rv // what the client is complete through before the item, if it is an event
	if i.object != nil {
		complete--
	}
	for complete >= f.target {
		if cursor, err := f.arrive(); cursor != nil || err != nil {
			return cursor, err
		}
	}
	if i.rv > f.through {
		if i.object != nil && f.sees(i.object) {
			frame, err := AppendEvent(f.scratch, f.encoding, i.kind, i.object, i.rv)
			if err != nil {
				return nil, err
			}
			f.scratch = frame
		}
		f.through = i.rv
	}
	f.next++
	f.failed = 0
	return nil, nil
}

// sees reports that the client is to be told of an object. A selector that is upstream's to apply has been applied.
func (f *Backfill) sees(o *object.Object) bool { return !f.selector.Fixed() || f.selector.Matches(o) }

// arrive makes the cursor that goes on from the target, or raises the target to where the log begins by now.
func (f *Backfill) arrive() (*Cursor, error) {
	hub := f.backfills.hub
	cursor, err := hub.For(f.owner).Resume(f.target, f.selector, f.encoding)
	if hub.resource.Log().Voids() != f.voids { // also if it was found: what was told until now belongs to another history
		if cursor != nil {
			cursor.Close()
		}
		return nil, &cache.ExpiredError{Asked: f.through, Oldest: hub.resource.Log().Floor(), Void: true}
	}
	var expired *cache.ExpiredError
	switch {
	case err == nil:
		return cursor, nil
	case errors.As(err, &expired) && expired.Missing():
		f.target = expired.Oldest
		f.told.aim(f.target)
		return nil, nil
	}
	return nil, err
}

// ended decides what follows the end of a retelling which has not told everything.
func (f *Backfill) ended(end error) error {
	f.Close()
	var expired *cache.ExpiredError
	switch {
	case errors.As(end, &expired):
		return end
	case errors.Is(end, ErrBackfillBehind):
		if f.lapped++; f.lapped >= maxLaps {
			return end
		}
	case errors.Is(end, errTold): // but the target has moved since
	case errors.Is(end, errMute), refusal(end):
		return &cache.ExpiredError{Asked: f.through, Oldest: f.target}
	default:
		f.failed++
	}
	return nil
}

// again joins another retelling, which begins where the client is by now.
func (f *Backfill) again(ctx context.Context) (*Cursor, error) {
	if f.failed > 0 {
		pause := min(firstPause<<min(f.failed-1, 8), lastPause)
		select {
		case <-time.After(pause/2 + rand.N(pause)): // #nosec G404 -- spreads times
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	err := f.join(waiting)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}

// join waits for a retelling that has its turn.
func (f *Backfill) join(ctx context.Context) error {
	told, err := f.backfills.enter(f)
	if err != nil {
		return &cache.ExpiredError{Asked: f.through, Oldest: f.target}
	}
	f.told = told
	select {
	case <-told.begun:
		return nil
	case <-ctx.Done():
		f.Close()
		return ErrBackfillBusy
	}
}
