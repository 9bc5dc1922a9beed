package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/object"
)

// coordinatorState is what the watches of one Coordinator have in common.
type coordinatorState struct {
	hub    *fanout.Hub
	source HistorySource
	limit  *WatchLimit
	ctx    context.Context

	open, opened atomic.Int64 // watches upstream
}

func (s *coordinatorState) log() *cache.Log { return s.hub.Resource().Log() }

// client is what a catchUpWatch knows of a Backfill.
type client struct {
	// Static after construction.
	voids uint64 // of the log, when it began

	// The client's goroutine's.
	next    uint64 // number of the watch's first item that was not read
	through uint64 // what the client is complete through
	target  uint64 // what it has to be complete through before the log goes on

	refused *cache.ExpiredError // guarded by the watch's mu: upstream does not remember what the client lacks
}

// catchUpWatch reads from upstream what happened before the log, once for several clients. It keeps
// what it has read, up to a number of bytes, so that a client that joins later receives all of it,
// and each client reads at its own pace.
//
// No client delays the others for long: where there is no room, the watch waits for the slowest
// client for slowClientsTimeout in all, then drops the oldest items. Nor does a client keep items
// in memory: replayTimeout after the end they are freed. Until then further clients may read them:
// after a restart clients reconnect over some seconds, and all lack the same events.
type catchUpWatch struct {
	// Static after construction.
	shared   *coordinatorState
	key      string
	selector object.Selector // of the watch upstream
	owner    fanout.Owner    // whose turn it takes: the first client's, if it is not shared
	voids    uint64          // of the log, when it began
	ctx      context.Context // ends when no client is left
	cancel   context.CancelFunc
	begun    chan struct{} // closed when it has its turn, or will never have one

	// Its own goroutine's.
	patience time.Duration // left for slow clients

	mu struct {
		sync.Mutex
		clients map[*client]uint64 // and the number of the first item that each has not taken
		started bool               // a watch was opened at from: a client that lacks more cannot join
		from    uint64             // the resourceVersion of the first watch
		through uint64             // the items are complete through this
		target  uint64             // the greatest that a client needs
		items   []item
		first   uint64 // number of items[0]
		dropped uint64 // resourceVersion of the item before that: an older client lacks items
		bytes   int64
		end     error         // why nothing follows
		freed   bool          // with all items
		changed chan struct{} // closed and replaced when there are more items, or the end
		moved   chan struct{} // likewise, when a client has taken items or left
	}
}

const (
	// slowClientsTimeout is how long a watch waits for slow clients, in all.
	slowClientsTimeout = 2 * time.Second
	// replayTimeout is how long a watch's items can be read after its end.
	replayTimeout = 5 * time.Second
	// silentWatchLimit is how many watches in a row may yield nothing, not even a bookmark.
	silentWatchLimit = 3
)

var (
	errComplete = errors.New("the items are complete through the target")
	errSilent   = errors.New("upstream sends neither events nor bookmarks")
)

func newCatchUpWatch(s *coordinatorState, key string, sel object.Selector) *catchUpWatch {
	w := &catchUpWatch{shared: s, key: key, selector: sel, voids: s.log().Epoch(), begun: make(chan struct{}),
		patience: slowClientsTimeout}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	w.mu.clients = map[*client]uint64{}
	w.mu.changed, w.mu.moved = make(chan struct{}), make(chan struct{})
	return w
}

// admit adds a client, if the items will be everything that it lacks.
func (w *catchUpWatch) admit(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.voids != w.voids {
		return false
	}
	over := w.mu.end != nil && (w.mu.end != errComplete || c.target > w.mu.through)
	late := w.mu.started && c.through < max(w.mu.from, w.mu.dropped)
	if over || late || w.mu.freed || w.ctx.Err() != nil {
		return false
	}
	c.next = w.mu.first
	w.mu.clients[c] = c.next
	w.mu.target = max(w.mu.target, c.target)
	return true
}

// leave removes a client. The watch ends with the last.
func (w *catchUpWatch) leave(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.clients, c)
	if len(w.mu.clients) == 0 && !(w.mu.end == errComplete && w.forAll()) {
		w.cancel()
	}
	w.moveLocked()
}

// forAll reports that it serves all clients that select by names and namespaces alone.
func (w *catchUpWatch) forAll() bool { return w.key == "" }

func (w *catchUpWatch) moveLocked() {
	close(w.mu.moved)
	w.mu.moved = make(chan struct{})
}

func (w *catchUpWatch) changeLocked() {
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// raise raises the target.
func (w *catchUpWatch) raise(target uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.target = max(w.mu.target, target)
}

// run reads from upstream, once it has its turn. It calls forget when no further client may join.
func (w *catchUpWatch) run(forget func(*catchUpWatch)) {
	defer w.cancel()
	limit := w.shared.limit
	err := limit.acquire(w.ctx, w.owner)
	close(w.begun)
	if err == nil {
		err = w.read()
		limit.release(w.owner)
	}
	w.finish(err)
	select {
	case <-time.After(replayTimeout):
	case <-w.ctx.Done(): // no client is left
	}
	forget(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.freed = true
	w.dropLocked(len(w.mu.items))
	w.changeLocked()
}

func (w *catchUpWatch) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.end = err
	w.changeLocked()
}

// read reads everything up to the target, by as many watches upstream as that takes. The error is
// errComplete, or why it could not be done.
func (w *catchUpWatch) read() error {
	for silent := 0; silent < silentWatchLimit; {
		some, err := w.readOne()
		switch {
		case err == nil && some: // the watch has ended; the next goes on from there
			silent = 0
		case err == nil:
			silent++
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			if err := w.refuse(err); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return errSilent
}

// readOne reads one watch upstream to its end, and reports whether it yielded anything. The error
// is errComplete once the items are complete through the target.
func (w *catchUpWatch) readOne() (some bool, err error) {
	rv, history, err := w.shared.source.Begin(w.ctx)
	if err != nil {
		return false, err
	}
	defer history.Close()
	from, target, ok := w.start()
	switch {
	case !ok:
		return false, context.Canceled
	case rv < target: // upstream has not reached the target: its history has been rewritten
		return false, fmt.Errorf("upstream is at %d, and was at %d before", rv, target)
	}
	if err := history.Watch(w.ctx, w.selector, from); err != nil {
		return false, err
	}
	w.shared.opened.Add(1)
	w.shared.open.Add(1)
	defer w.shared.open.Add(-1)
	for {
		kind, o, rv, err := history.Next()
		switch {
		case errors.Is(err, io.EOF), err != nil && some && !answered(err): // the next watch goes on from there
			return some, nil
		case err != nil:
			return some, err
		case w.add(item{kind: kind, object: o, rv: rv}):
			return true, errComplete
		}
		some = true
	}
}

// answered reports that an error is upstream's answer.
func answered(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// refusal reports that upstream would refuse such a request at any other time, too.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// start is where the next watch upstream begins: where the last one ended, or at the smallest
// resourceVersion of the clients. It returns false if no client is left.
func (w *catchUpWatch) start() (from, target uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.started {
		return w.mu.through, w.mu.target, len(w.mu.clients) > 0
	}
	for c := range w.mu.clients {
		if !ok || c.through < from {
			from, ok = c.through, true
		}
	}
	w.mu.started, w.mu.from, w.mu.through = true, from, from
	return from, w.mu.target, ok
}

// refuse removes the clients that lack more than upstream remembers, with upstream's own refusal:
// its message names the oldest version that it remembers (W-107). The client that lacks most is
// removed in any case, so that the next watch is another one. An error refuses all clients.
func (w *catchUpWatch) refuse(err error) error {
	var asked, oldest uint64
	words := ""
	if _, bad := fmt.Sscanf(err.Error(), "too old resource version: %d (%d)", &asked, &oldest); bad != nil {
		oldest = 0
		if apierrors.IsResourceExpired(err) {
			words = err.Error()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.first > 0 || len(w.mu.items) > 0 { // upstream has forgotten what follows, which all clients lack
		return &cache.ExpiredError{RequestedRV: w.mu.through, OldestRV: max(oldest, w.mu.through+1), Message: words}
	}
	oldest = max(oldest, w.mu.from+1)
	for c := range w.mu.clients {
		if c.through < oldest {
			c.refused = &cache.ExpiredError{RequestedRV: c.through, OldestRV: oldest, Message: words}
			delete(w.mu.clients, c)
		}
	}
	if len(w.mu.clients) == 0 {
		w.cancel()
	}
	w.mu.started = false
	w.changeLocked()
	return nil
}

// add keeps an item, and reports whether the items are then complete through the target.
func (w *catchUpWatch) add(i item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	complete := i.rv
	if i.object != nil {
		complete--
	}
	if complete >= w.mu.target && !w.raiseLocked(complete) {
		w.keepLocked(item{rv: complete})
		w.mu.end = errComplete
		return true
	}
	w.roomLocked(i.size())
	w.keepLocked(i)
	return false
}

// raiseLocked raises the target to where the log begins by now, and reports whether that is beyond
// what was read.
func (w *catchUpWatch) raiseLocked(complete uint64) bool {
	for complete >= w.mu.target {
		_, err := w.shared.log().Find(w.mu.target)
		var expired *cache.ExpiredError
		if !errors.As(err, &expired) || !expired.IsGap() {
			return false
		}
		w.mu.target = expired.OldestRV
	}
	return true
}
