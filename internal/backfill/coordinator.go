package backfill

import (
	"context"
	"errors"
	"slices"
	"sync"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// Coordinator opens watches upstream for the clients of one hub that resume from before its log.
//
// Clients that select by names and namespaces alone share watches of everything, from the smallest
// resourceVersion among them: whether such a selector shows an object never changes. Upstream
// applies all other selectors, because only upstream knows what an object was before a change.
type Coordinator struct {
	coordinatorState
	stop context.CancelFunc // ends the watches

	mu struct {
		sync.Mutex
		closed  bool
		watches map[string][]*catchUpWatch // by selector; those that clients may still join
	}
	running sync.WaitGroup
}

// New returns a Coordinator for the clients of a hub, within a limit that it shares with others.
// Close it.
func New(h *fanout.Hub, s HistorySource, l *WatchLimit) *Coordinator {
	c := &Coordinator{coordinatorState: coordinatorState{hub: h, source: s, limit: l}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.mu.watches = map[string][]*catchUpWatch{}
	return c
}

// Close ends all watches, and returns when they have ended.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
}

// Watches is how many watches upstream are open, and how many have been opened.
func (c *Coordinator) Watches() (open, opened int64) { return c.open.Load(), c.opened.Load() }

// Join subscribes a client of an owner's that is complete through rv to the events after it, and
// waits for its turn. Close what it returns. If the turn does not come before ctx ends, the error
// is ErrBusy. It returns nil if a backfill is not what the client lacks: the log has everything, or
// upstream does not remember it either (see fanout.OwnerView.CursorFromRV).
func (c *Coordinator) Join(ctx context.Context, owner fanout.Owner, rv uint64, sel object.Selector) (*Backfill, error) {
	b := &Backfill{coordinator: c, owner: owner, selector: sel, pauses: failurePauses,
		client: client{epoch: c.log().Epoch(), completeRV: rv}}
	_, err := c.log().Find(rv)
	var expired *cache.ExpiredError
	if !errors.As(err, &expired) || !expired.IsGap() || rv == 0 {
		return nil, nil
	}
	b.client.targetRV = expired.OldestRV
	if err := b.join(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// enter adds a client to a watch that still has everything that it lacks, or to a new one.
func (c *Coordinator) enter(b *Backfill) (*catchUpWatch, error) {
	key, sel := b.selector.Key(), b.selector
	if sel.Fixed() {
		key, sel = "", object.Selector{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, errClosed
	}
	for _, w := range c.mu.watches[key] {
		if w.admit(&b.client) {
			return w, nil
		}
	}
	w := newCatchUpWatch(&c.coordinatorState, key, sel)
	if !w.isForAll() {
		w.owner = b.owner
	}
	if !w.admit(&b.client) { // history has become void in this moment
		w.cancel()
		return nil, errClosed
	}
	c.mu.watches[key] = append(c.mu.watches[key], w)
	c.running.Go(func() { w.run(c.forget) })
	return w, nil
}

// forget removes a watch: no further client may join it.
func (c *Coordinator) forget(w *catchUpWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.mu.watches[w.key], func(other *catchUpWatch) bool { return other == w })
	if len(left) == 0 {
		delete(c.mu.watches, w.key)
		return
	}
	c.mu.watches[w.key] = left
}
