package backfill

import (
	"time"
)

// itemBatch is how many items a client reads at once.
const itemBatch = 256

// from is what a client has not read yet. If there is nothing, end is why nothing follows, or
// changed closes when something does.
func (w *catchUpWatch) from(c *client) (items []item, changed <-chan struct{}, end error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.refused != nil:
		return nil, nil, c.refused
	case c.next < w.mu.first:
		return nil, nil, ErrBehind
	case c.next > w.mu.clients[c]:
		w.mu.clients[c] = c.next
		w.moveLocked()
	}
	items = w.mu.items[c.next-w.mu.first:]
	items = items[:min(len(items), itemBatch):len(items)]
	return items, w.mu.changed, w.mu.end
}

func (w *catchUpWatch) keepLocked(i item) {
	w.mu.items = append(w.mu.items, i)
	w.mu.through = max(w.mu.through, i.rv)
	w.mu.bytes += i.size()
	w.shared.limit.held.Add(i.size())
	w.changeLocked()
}

// roomLocked makes room for so many bytes: it drops what all clients have taken, and if that is not
// enough, what the slowest have not.
func (w *catchUpWatch) roomLocked(size int64) {
	limit := w.shared.limit
	for len(w.mu.items) > 0 && limit.full(w.mu.bytes, size) {
		taken := uint64(len(w.mu.items))
		for _, next := range w.mu.clients {
			taken = min(taken, max(next, w.mu.first)-w.mu.first)
		}
		switch {
		case taken > 0:
			w.dropLocked(int(taken)) // #nosec G115 -- not above the number of items
		case w.patience <= 0 || w.ctx.Err() != nil:
			w.dropLocked((len(w.mu.items) + 1) / 2)
		default:
			w.awaitLocked()
		}
	}
}

// awaitLocked waits until a client has taken something, as long as there is patience.
func (w *catchUpWatch) awaitLocked() {
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
		w.shared.limit.held.Add(-i.size())
		w.mu.dropped = i.rv
	}
	w.mu.items = append([]item(nil), w.mu.items[n:]...) // another array: clients may still read this one
	w.mu.first += uint64(n)                             // #nosec G115 -- a number of items
}
