// Package backfill serves resumes from before the log by short watches upstream (design D6): after
// a restart of the proxy, or at another replica, a client continues where it was and lists nothing.
//
// A Coordinator opens the watches for the clients of one hub, and a WatchLimit bounds them over all
// resources. A Backfill is what one client reads: upstream's own events up to a target, then a
// cursor of the log. Clients that select by names and namespaces alone share one catchUpWatch.
//
// Invariant: a client receives what upstream's own watch would have sent it. Nothing is missing
// between the last event of a Backfill and the first of its cursor, and nothing comes twice.
//
// A LIST upstream could not replace the watch: the difference between two states does not show an
// object that came and went. Nor could each client have a watch of its own: hundreds resume
// together.
package backfill

import (
	"context"
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// Backfill is what one client reads from before the log: upstream's events up to where the log goes
// on. One goroutine uses it.
//
// The events, their bytes and their order are those of upstream's own watch. One thing is decided
// here: where they end. An event above the target, or a bookmark at or above it, proves that
// everything up to the target was read; what is above the target, the log has. If the log no longer
// reaches back to the target by then, the target moves to where it does.
type Backfill struct {
	// Static after construction.
	coordinator *Coordinator
	owner       fanout.Owner
	selector    object.Selector

	// The client's goroutine's.
	watch    *catchUpWatch // nil: none yet, or the last one was of no further use
	lagEnds  int           // watches that the client did not keep up with
	pause    time.Duration // until the next watch, because upstream did not answer
	pauses   wait.Backoff  // that follow
	scratch  []byte
	encoding object.Encoding // of scratch

	client client // what its watch knows of it
}

const (
	// behindLimit is how often a client may not keep up before it has to reconnect later.
	behindLimit = 3
	// turnTimeout is how long a client that has received events already waits for its turn at the next
	// watch.
	turnTimeout = 30 * time.Second
	// runBytes is about how many bytes of frames one Next returns.
	runBytes = 64 << 10
)

// failurePauses are how long a client waits for the next watch upstream after failures: about half
// a second first, and at most about 15 s, each up to half as long again or as short.
var failurePauses = wait.Backoff{
	Duration: 500 * time.Millisecond / 2, Factor: 2, Jitter: 2, Steps: math.MaxInt, Cap: 15 * time.Second / 2,
}

var (
	// ErrBusy says that a client did not get its turn in time. It can reconnect later.
	ErrBusy = errors.New("too many clients are resuming from before the history in memory")
	// ErrBehind says that a client did not keep up with the watch. It can go on from where it is.
	ErrBehind = errors.New("the client did not keep up with the events from before the history in memory")

	errClosed = errors.New("the mirror has ended")
)

// Close removes the client from its watch. Idempotent.
func (b *Backfill) Close() {
	if b.watch != nil {
		b.watch.leave(&b.client)
		b.watch = nil
	}
}

// Next waits for the frames that follow, ready to send and valid until the next call; or it returns
// the cursor that goes on from the target, which is the end of the Backfill. An error is a
// cache.ExpiredError: upstream does not remember the events either; ErrUnencodable; ErrBusy or
// ErrBehind: the client can go on from where it is, at another time; or the cause of ctx's end.
func (b *Backfill) Next(ctx context.Context, enc object.Encoding) ([]byte, *fanout.Cursor, error) {
	b.scratch, b.encoding = b.scratch[:0], enc
	for {
		cursor, err := b.step(ctx)
		switch {
		case len(b.scratch) > 0: // the frames come first; the next call finds the cursor or the error again
			if cursor != nil {
				cursor.Close()
			}
			return b.scratch, nil, nil
		case cursor != nil || err != nil:
			return nil, cursor, err
		}
	}
}

// step reads what there is, and waits if there is nothing. It returns nothing unless the Backfill
// ends: with a cursor, or with an error.
func (b *Backfill) step(ctx context.Context) (*fanout.Cursor, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if b.watch == nil {
		return nil, b.rejoin(ctx)
	}
	items, changed, endErr := b.watch.itemsFor(&b.client)
	for _, i := range items {
		cursor, err := b.takeItem(i)
		if cursor != nil || err != nil || len(b.scratch) >= runBytes {
			return cursor, err
		}
	}
	switch {
	case len(items) > 0 || len(b.scratch) > 0:
		return nil, nil
	case endErr != nil:
		return nil, b.handleEnd(endErr)
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return nil, nil
}

// takeItem reads one item. It returns the cursor that goes on from the target, once the item proves
// that everything up to there was read.
func (b *Backfill) takeItem(i item) (*fanout.Cursor, error) {
	for i.completeRV() >= b.client.targetRV {
		if cursor, err := b.resumeFromLog(); cursor != nil || err != nil {
			return cursor, err
		}
	}
	if i.rv > b.client.completeRV {
		if i.object != nil && b.isSelected(i.object) {
			frame, err := fanout.AppendEvent(b.scratch, b.encoding, i.kind, i.object, i.rv)
			if err != nil {
				return nil, err
			}
			b.scratch = frame
		}
		b.client.completeRV = i.rv
	}
	b.client.nextItem++
	b.pause, b.pauses = 0, failurePauses
	return nil, nil
}

// isSelected reports that the client's selector shows an object. Upstream has applied a selector by
// which an object may come and go.
func (b *Backfill) isSelected(o *object.Object) bool {
	return !b.selector.Fixed() || b.selector.Matches(o)
}

// resumeFromLog makes the cursor that goes on from the target. It returns nothing if it has raised
// the target to where the log begins by now.
func (b *Backfill) resumeFromLog() (*fanout.Cursor, error) {
	hub, log := b.coordinator.hub, b.coordinator.log()
	cursor, err := hub.ViewFor(b.owner).CursorFromRV(b.client.targetRV, b.selector, b.encoding)
	if log.Epoch() != b.client.epoch { // also if the target was found: what was read belongs to another history
		if cursor != nil {
			cursor.Close()
		}
		return nil, &cache.ExpiredError{RequestedRV: b.client.completeRV, OldestRV: log.Floor(), Void: true}
	}
	var expired *cache.ExpiredError
	switch {
	case err == nil:
		return cursor, nil
	case errors.As(err, &expired) && expired.IsGap():
		b.client.targetRV = expired.OldestRV
		b.watch.raiseTarget(b.client.targetRV)
		return nil, nil
	}
	return nil, err
}

// handleEnd decides what follows the end of a watch that did not reach the target.
func (b *Backfill) handleEnd(err error) error {
	b.Close()
	var expired *cache.ExpiredError
	switch {
	case errors.As(err, &expired):
		return err
	case errors.Is(err, ErrBehind):
		if b.lagEnds++; b.lagEnds >= behindLimit {
			return err
		}
	case errors.Is(err, errComplete): // but the target has moved since
	case errors.Is(err, errSilent), isRefusal(err):
		return &cache.ExpiredError{RequestedRV: b.client.completeRV, OldestRV: b.client.targetRV}
	default:
		b.pause = b.pauses.Step()
	}
	return nil
}

// rejoin joins another watch, which begins where the client is by now.
func (b *Backfill) rejoin(ctx context.Context) error {
	if b.pause > 0 {
		select {
		case <-time.After(b.pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	err := b.join(waiting)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// join waits for a watch that has its turn.
func (b *Backfill) join(ctx context.Context) error {
	watch, err := b.coordinator.enter(b)
	if err != nil {
		return &cache.ExpiredError{RequestedRV: b.client.completeRV, OldestRV: b.client.targetRV}
	}
	b.watch = watch
	select {
	case <-watch.turnSettled:
		return nil
	case <-ctx.Done():
		b.Close()
		return ErrBusy
	}
}
