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
	epoch uint64 // of the log, when it began

	// The client's goroutine's.
	nextItem   uint64 // number of the watch's first item that was not read
	completeRV uint64 // what the client is complete through
	targetRV   uint64 // what it has to be complete through before the log goes on

	refusal *cache.ExpiredError // guarded by the watch's mu: upstream does not remember what the client lacks
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
	epoch    uint64          // of the log, when it began
	ctx      context.Context // ends when no client is left
	cancel   context.CancelFunc

	turnSettled chan struct{} // closed when it has its turn, or will never have one

	// Its own goroutine's.
	patience time.Duration // left for slow clients

	mu struct {
		sync.Mutex
		clients    map[*client]uint64 // and the number of the first item that each has not taken
		started    bool               // a watch was opened at fromRV: a client that lacks more cannot join
		fromRV     uint64             // where the first watch began
		completeRV uint64             // what the items are complete through
		targetRV   uint64             // the greatest that a client needs
		items      []item
		firstItem  uint64        // number of items[0]
		droppedRV  uint64        // of the item in front of items[0]: an older client lacks items
		bytes      int64         // of items
		endErr     error         // why nothing follows
		isFreed    bool          // all items are dropped, after the end
		changed    chan struct{} // closed and replaced when there are more items, or the end
		moved      chan struct{} // likewise, when a client has taken items or left
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
	w := &catchUpWatch{shared: s, key: key, selector: sel, epoch: s.log().Epoch(), turnSettled: make(chan struct{}),
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
	if c.epoch != w.epoch {
		return false
	}
	endsBelow := w.mu.endErr != nil && (w.mu.endErr != errComplete || c.targetRV > w.mu.completeRV)
	beginsAbove := w.mu.started && c.completeRV < max(w.mu.fromRV, w.mu.droppedRV)
	if endsBelow || beginsAbove || w.mu.isFreed || w.ctx.Err() != nil {
		return false
	}
	c.nextItem = w.mu.firstItem
	w.mu.clients[c] = c.nextItem
	w.mu.targetRV = max(w.mu.targetRV, c.targetRV)
	return true
}

// leave removes a client. The watch ends with the last.
func (w *catchUpWatch) leave(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.clients, c)
	if len(w.mu.clients) == 0 && !(w.mu.endErr == errComplete && w.isForAll()) {
		w.cancel()
	}
	w.moveLocked()
}

// isForAll reports that it serves all clients that select by names and namespaces alone.
func (w *catchUpWatch) isForAll() bool { return w.key == "" }

func (w *catchUpWatch) moveLocked() {
	close(w.mu.moved)
	w.mu.moved = make(chan struct{})
}

func (w *catchUpWatch) changeLocked() {
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// raiseTarget raises the target.
func (w *catchUpWatch) raiseTarget(target uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.targetRV = max(w.mu.targetRV, target)
}

// run reads from upstream, once it has its turn. It calls forget when no further client may join.
func (w *catchUpWatch) run(forget func(*catchUpWatch)) {
	defer w.cancel()
	limit := w.shared.limit
	err := limit.acquire(w.ctx, w.owner)
	close(w.turnSettled)
	if err == nil {
		err = w.read()
		limit.release(w.owner)
	}
	w.setEnd(err)
	select {
	case <-time.After(replayTimeout):
	case <-w.ctx.Done(): // no client is left
	}
	forget(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.isFreed = true
	w.dropLocked(len(w.mu.items))
	w.changeLocked()
}

func (w *catchUpWatch) setEnd(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.endErr = err
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
			if err := w.refuseClients(err); err != nil {
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
	fromRV, targetRV, ok := w.nextRange()
	switch {
	case !ok:
		return false, context.Canceled
	case rv < targetRV: // upstream has not reached the target: its history has been rewritten
		return false, fmt.Errorf("upstream is at %d, and was at %d before", rv, targetRV)
	}
	if err := history.Watch(w.ctx, w.selector, fromRV); err != nil {
		return false, err
	}
	w.shared.opened.Add(1)
	w.shared.open.Add(1)
	defer w.shared.open.Add(-1)
	for {
		kind, o, rv, err := history.Next()
		switch {
		case errors.Is(err, io.EOF), err != nil && some && !isAnswer(err): // the next watch goes on from there
			return some, nil
		case err != nil:
			return some, err
		case w.addItem(item{kind: kind, object: o, rv: rv}):
			return true, errComplete
		}
		some = true
	}
}

// isAnswer reports that an error is upstream's answer.
func isAnswer(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// isRefusal reports that upstream would refuse such a request at any other time, too.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// nextRange is where the next watch upstream begins: where the last one ended, or at the smallest
// resourceVersion of the clients. It returns false if no client is left.
func (w *catchUpWatch) nextRange() (fromRV, targetRV uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.started {
		return w.mu.completeRV, w.mu.targetRV, len(w.mu.clients) > 0
	}
	for c := range w.mu.clients {
		if !ok || c.completeRV < fromRV {
			fromRV, ok = c.completeRV, true
		}
	}
	w.mu.started, w.mu.fromRV, w.mu.completeRV = true, fromRV, fromRV
	return fromRV, w.mu.targetRV, ok
}

// refuseClients removes the clients that lack more than upstream remembers, with upstream's own
// refusal. The client that lacks most is removed in any case, so that the next watch is another
// one. An error refuses all clients.
func (w *catchUpWatch) refuseClients(err error) error {
	oldestRV, message := readExpired(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.firstItem > 0 || len(w.mu.items) > 0 { // upstream has forgotten what follows, which all clients lack
		rv := w.mu.completeRV
		return &cache.ExpiredError{RequestedRV: rv, OldestRV: max(oldestRV, rv+1), Message: message}
	}
	oldestRV = max(oldestRV, w.mu.fromRV+1)
	for c := range w.mu.clients {
		if c.completeRV < oldestRV {
			c.refusal = &cache.ExpiredError{RequestedRV: c.completeRV, OldestRV: oldestRV, Message: message}
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

// readExpired reads the oldest version that upstream remembers from its refusal (W-107). It is 0 if
// the refusal names none; then clients get its own message, if it has one for them.
func readExpired(err error) (oldestRV uint64, message string) {
	var requestedRV uint64
	const format = "too old resource version: %d (%d)"
	if _, mismatch := fmt.Sscanf(err.Error(), format, &requestedRV, &oldestRV); mismatch == nil {
		return oldestRV, ""
	}
	if apierrors.IsResourceExpired(err) {
		message = err.Error()
	}
	return 0, message
}

// addItem keeps an item, and reports whether the items are then complete through the target.
func (w *catchUpWatch) addItem(i item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rv := i.completeRV(); rv >= w.mu.targetRV && !w.raiseTargetLocked(rv) {
		w.appendLocked(item{rv: rv})
		w.mu.endErr = errComplete
		return true
	}
	w.makeRoomLocked(i.size())
	w.appendLocked(i)
	return false
}

// raiseTargetLocked raises the target to where the log begins by now, and reports whether that is
// beyond completeRV, up to which everything was read.
func (w *catchUpWatch) raiseTargetLocked(completeRV uint64) bool {
	for completeRV >= w.mu.targetRV {
		_, err := w.shared.log().Find(w.mu.targetRV)
		var expired *cache.ExpiredError
		if !errors.As(err, &expired) || !expired.IsGap() {
			return false
		}
		w.mu.targetRV = expired.OldestRV
	}
	return true
}
