package backfill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// HistorySource is upstream's history of the resource, from before the log begins.
type HistorySource interface {
	// Begin finds an apiserver to read from. rv is how far its storage was, at some moment since the
	// call.
	Begin(ctx context.Context) (rv uint64, w HistoryWatch, err error)
}

// HistoryWatch is one watch upstream, of an apiserver that was just made current (design D7). One
// goroutine uses it.
type HistoryWatch interface {
	// Watch begins to read what a selector shows after from, for about three seconds.
	Watch(ctx context.Context, sel object.Selector, from uint64) error
	// Next is the next event; without an object it is a bookmark. io.EOF is the end of the watch,
	// which proves nothing.
	Next() (t object.Type, o *object.Object, rv uint64, err error)
	Close()
}

// Coordinator opens watches upstream for the clients of one hub that resume from before its log.
//
// Clients that select by names and namespaces alone share watches of everything, from the smallest
// resourceVersion among them: whether such a selector shows an object never changes. Upstream
// applies all other selectors, since only upstream knows what an object was before a change.
type Coordinator struct {
	// Static after construction.
	hub    *fanout.Hub
	source HistorySource
	limit  *WatchLimit
	ctx    context.Context // of the watches
	stop   context.CancelFunc

	open, opened atomic.Int64

	mu struct {
		sync.Mutex
		closed  bool
		watches map[string][]*catchUpWatch // by selector; those that clients may still join
	}
	running sync.WaitGroup
}

var (
	// ErrBusy says that a client did not get its turn in time. It can reconnect later.
	ErrBusy = errors.New("too many clients are resuming from before the history in memory")
	// ErrBehind says that a client did not keep up with the watch. It can go on from where it is.
	ErrBehind = errors.New("the client did not keep up with the events from before the history in memory")

	errClosed = errors.New("the mirror has ended")
)

// New returns a Coordinator for the clients of a hub, within a limit that it shares with others.
// Close it.
func New(h *fanout.Hub, s HistorySource, l *WatchLimit) *Coordinator {
	c := &Coordinator{hub: h, source: s, limit: l}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.mu.watches = map[string][]*catchUpWatch{}
	return c
}

func (c *Coordinator) log() *cache.Log { return c.hub.Resource().Log() }

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
// upstream does not remember it either (see fanout.Hub.Resume).
func (c *Coordinator) Join(ctx context.Context, owner fanout.Owner, rv uint64, sel object.Selector) (*Backfill, error) {
	b := &Backfill{coordinator: c, owner: owner, voids: c.log().Voids(), through: rv, selector: sel}
	_, err := c.log().Find(rv)
	var expired *cache.ExpiredError
	if !errors.As(err, &expired) || !expired.Missing() || rv == 0 {
		return nil, nil
	}
	b.target = expired.Oldest
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
		if w.admit(b) {
			return w, nil
		}
	}
	w := newCatchUpWatch(c, key, sel)
	if !w.shared() {
		w.owner = b.owner
	}
	if !w.admit(b) { // history has become void in this moment
		w.cancel()
		return nil, errClosed
	}
	c.mu.watches[key] = append(c.mu.watches[key], w)
	c.running.Go(w.run)
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

// turnTimeout is how long a client that has received events already waits for its turn at the next
// watch.
const turnTimeout = 30 * time.Second
