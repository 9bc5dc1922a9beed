package backfill

import (
	"time"

	"spillway/internal/object"
)

// item is an event, or without an object a bookmark.
type item struct {
	kind   object.Type
	object *object.Object
	rv     uint64
}

// completeRV is what a client is complete through that has read everything in front of the item: an
// event is the first with its resourceVersion, and a bookmark shows that there is no other.
func (i item) completeRV() uint64 {
	if i.object != nil {
		return i.rv - 1
	}
	return i.rv
}

// size is what an item counts against the WatchLimit.
func (i item) size() int64 {
	const overhead = 96
	if i.object == nil {
		return overhead
	}
	return int64(i.object.Size()) + overhead
}

// itemBatch is how many items a client reads at once.
const itemBatch = 256

// itemsFor is what a client has not read yet. If there is nothing, endErr is why nothing follows,
// or changed closes when something does.
func (w *catchUpWatch) itemsFor(c *client) (items []item, changed <-chan struct{}, endErr error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.refusal != nil:
		return nil, nil, c.refusal
	case c.nextItem < w.mu.firstItem:
		return nil, nil, ErrBehind
	case c.nextItem > w.mu.clients[c]:
		w.mu.clients[c] = c.nextItem
		w.moveLocked()
	}
	items = w.mu.items[c.nextItem-w.mu.firstItem:]
	items = items[:min(len(items), itemBatch):len(items)]
	return items, w.mu.changed, w.mu.endErr
}

// appendLocked keeps an item for the clients.
func (w *catchUpWatch) appendLocked(i item) {
	w.mu.items = append(w.mu.items, i)
	w.mu.completeRV = max(w.mu.completeRV, i.rv)
	w.mu.bytes += i.size()
	w.shared.limit.heldBytes.Add(i.size())
	w.changeLocked()
}

// makeRoomLocked makes room for so many bytes: it drops what all clients have taken, and if that is
// not enough, what the slowest have not.
func (w *catchUpWatch) makeRoomLocked(size int64) {
	limit := w.shared.limit
	for len(w.mu.items) > 0 && limit.isFull(w.mu.bytes, size) {
		taken := uint64(len(w.mu.items))
		for _, next := range w.mu.clients {
			taken = min(taken, max(next, w.mu.firstItem)-w.mu.firstItem)
		}
		switch {
		case taken > 0:
			w.dropLocked(int(taken)) // #nosec G115 -- not above the number of items
		case w.patience <= 0 || w.ctx.Err() != nil:
			w.dropLocked((len(w.mu.items) + 1) / 2)
		default:
			w.awaitMoveLocked()
		}
	}
}

// awaitMoveLocked waits until a client has taken something, as long as there is patience. It gives
// the lock up meanwhile.
func (w *catchUpWatch) awaitMoveLocked() {
	moved := w.mu.moved
	w.mu.Unlock()
	defer w.mu.Lock()
	began := time.Now()
	select {
	case <-moved:
	case <-time.After(w.patience):
	case <-w.ctx.Done():
	}
	w.patience -= time.Since(began)
}

// dropLocked drops the oldest items.
func (w *catchUpWatch) dropLocked(n int) {
	for _, i := range w.mu.items[:n] {
		w.mu.bytes -= i.size()
		w.shared.limit.heldBytes.Add(-i.size())
		w.mu.droppedRV = i.rv
	}
	w.mu.items = append([]item(nil), w.mu.items[n:]...) // another array: clients may still read this one
	w.mu.firstItem += uint64(n)                         // #nosec G115 -- a number of items
}
