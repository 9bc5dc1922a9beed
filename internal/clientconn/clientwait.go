package clientconn

import (
	"cmp"
	"sync/atomic"
	"time"
)

// ClientWait is how long a write has waited for its client. The zero value is no wait. One
// goroutine writes it, any may read it.
type ClientWait struct {
	since  atomic.Int64 // when the client last took a byte, or the write began, since pinEpoch; 0: no write waits
	unsent atomic.Int64 // bytes
}

// Of is since when a write has waited without a byte taken, and how many bytes wait. The zero time
// is no wait. The nil ClientWait never waits.
func (w *ClientWait) Of() (since time.Time, unsent int) {
	if w == nil {
		return since, 0
	}
	began := w.since.Load()
	if began == 0 {
		return since, 0
	}
	return time.Now().Add(time.Duration(began) - time.Since(pinEpoch)), int(w.unsent.Load())
}

// begin notes that so many bytes wait. A wait that has begun goes on.
func (w *ClientWait) begin(unsent int) {
	w.unsent.Store(int64(unsent))
	w.since.CompareAndSwap(0, cmp.Or(int64(time.Since(pinEpoch)), 1))
}

// end notes that the client has taken something, or that nothing is written any more.
func (w *ClientWait) end() { w.since.Store(0) }
