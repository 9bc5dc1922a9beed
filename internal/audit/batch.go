package audit

import (
	"slices"
	"time"
)

// batch is events of one record, of which either all are on record or none is known to be.
type batch struct {
	lines   []byte
	size    int // bytes that it holds: of the lines, or of whose end it is
	events  int
	ended   *RequestRecord // whose last event this is, of which no line is made yet; nil: there are lines
	at      time.Time
	tried   chan struct{} // closed when it has been written, or was not; nil: no answer waits
	err     error         // then
	forgone bool          // it counts as lost, whatever comes of it
}

// batchQueue is batches that wait, in the order in which they came.
type batchQueue struct {
	batches []*batch
	events  int
	size    int
	maxSize int // a single batch may have any size
}

func (l *batchQueue) isFullFor(b *batch) bool {
	return l.events+b.events > queueEvents || l.size+b.size > l.maxSize && len(l.batches) > 0
}

func (l *batchQueue) add(b *batch) {
	l.batches = append(l.batches, b)
	l.events, l.size = l.events+b.events, l.size+b.size
}

func (l *batchQueue) pop() *batch {
	b := l.batches[0]
	l.batches[0] = nil // the array outlives it
	l.batches = l.batches[1:]
	l.events, l.size = l.events-b.events, l.size-b.size
	return b
}

// remove takes out a batch, if it is there.
func (l *batchQueue) remove(b *batch) {
	if i := slices.Index(l.batches, b); i >= 0 {
		l.batches = slices.Delete(l.batches, i, i+1)
		l.events, l.size = l.events-b.events, l.size-b.size
	}
}
