package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// queueEvents is how many events of answers wait at most to be written, and how many ends: those
	// of all watches of a large proxy that ends them at once. Each of those has been in memory for as
	// long as its watch.
	queueEvents = 1 << 17
	// answerBytes is how many bytes the lines of answers may have that wait.
	answerBytes = 16 << 20
	// endBytes is how many bytes ends may hold that wait: it is the lower bound only if their clients
	// ask for them at length.
	endBytes = 64 << 20
	// writeBytes is the size from which no more is added to one write.
	writeBytes = 64 << 10
	// writeTimeout is how long an answer waits for its events to be written. What blocks for longer
	// counts as what fails.
	writeTimeout = time.Second
	// closeTimeout is how long the end of the process waits for what is left.
	closeTimeout = 5 * time.Second
)

var (
	errBlocked = fmt.Errorf("it has taken nothing for %v", writeTimeout)
	errFull    = errors.New("it takes events more slowly than they come, and too many wait")
	errClosed  = errors.New("it is closed")
)

// queue is the events that are not written yet, and the one goroutine that writes them. A write may
// never end: a pipe without a reader, a network file system whose server is gone.
//
// An answer waits for its events as long as writes end. Once an event has waited for longer than
// writeTimeout, no answer waits: a log that fails closed then refuses events at once, and their
// requests pass through; another one keeps events in the queue without their answers, and refuses
// them when there are too many.
//
// The last event of a watch has a queue of its own, which is written when no answer waits. So any
// number of watches that end at once neither delay an answer nor look like a log that blocks. The
// first event of a watch is still written before its last.
//
// kube-apiserver's buffered backend is not used: it drops events without saying which, and its
// Shutdown may never return.
type queue struct {
	// Static after construction.
	failClosed bool
	metrics    *Metrics
	losses     *lossReporter
	done       chan struct{} // closed when nothing is written any more

	// The goroutine's.
	out  io.Writer
	torn bool  // the last line has no end
	err  error // of closing out; others read it once done is closed

	mu struct {
		sync.Mutex
		changed       *sync.Cond // there is something to write, or it is closed
		answers, ends batchQueue
		writing       []*batch
		began         time.Time // of writing
		writes        uint64    // that have ended
		closed        bool
	}
}

func newQueue(o Options) *queue {
	q := &queue{
		failClosed: o.FailClosed, metrics: o.Metrics, losses: newLossReporter(o), done: make(chan struct{}), out: o.Out,
	}
	q.mu.changed = sync.NewCond(&q.mu)
	q.mu.answers.maxSize, q.mu.ends.maxSize = answerBytes, endBytes
	go q.run()
	return q
}

// write puts lines on record. Without an error they are on record; if the log does not fail closed,
// they may also be about to be, when it can be written again.
func (q *queue) write(lines []byte, events int) error {
	b := &batch{lines: lines, size: len(lines), events: events, at: time.Now(), tried: make(chan struct{})}
	late, err := q.add(b)
	if late || err != nil {
		return err
	}
	select {
	case <-b.tried:
		return b.err
	case <-time.After(writeTimeout):
		return q.stopWaiting(b)
	}
}

// add queues a batch, or counts it as lost and says why. late reports that there is no point in
// waiting for it.
func (q *queue) add(b *batch) (late bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	late = q.lateLocked(b.at)
	list := &q.mu.answers
	if b.ended != nil {
		list = &q.mu.ends
	}
	switch {
	case q.mu.closed:
		err = errClosed
	case late && q.failClosed && b.ended == nil:
		err = errBlocked
	case list.isFullFor(b):
		err = errFull
	default:
		list.add(b)
		q.mu.changed.Signal()
		return late, nil
	}
	q.noteLoss(err, b.events)
	return late, err
}

// lateLocked reports that a write lasts, or an answer has waited, for too long by now.
func (q *queue) lateLocked(now time.Time) bool {
	if len(q.mu.writing) > 0 && now.Sub(q.mu.began) >= writeTimeout {
		return true
	}
	answers := q.mu.answers.batches
	return len(answers) > 0 && now.Sub(answers[0].at) >= writeTimeout
}

// stopWaiting ends an answer's wait for a batch. A log that fails closed takes the batch back; one
// that is being written counts as lost, because the result is not known yet.
func (q *queue) stopWaiting(b *batch) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-b.tried:
		return b.err
	default:
	}
	if !q.failClosed {
		q.noteLoss(errBlocked, 0)
		return nil
	}
	b.forgone = true
	q.mu.answers.remove(b)
	q.noteLoss(errBlocked, b.events)
	return errBlocked
}

// noteLoss counts and reports events that are lost.
func (q *queue) noteLoss(err error, events int) {
	q.metrics.failures.Add(float64(events))
	q.losses.noteLoss(err, events)
}

func (q *queue) run() {
	defer close(q.done)
	for group := q.take(); group != nil; group = q.take() {
		var lines []byte
		ends := make([]int, len(group)) // of each batch, in lines
		for i, b := range group {
			if b.ended != nil {
				b.lines, b.err = b.ended.line(stageComplete, b.at)
			}
			lines = append(lines, b.lines...)
			ends[i] = len(lines)
		}
		n, err := q.put(lines)
		q.settle(group, ends, n, err)
	}
	if out, ok := q.out.(io.Closer); ok {
		q.err = out.Close()
	}
}

// take waits for what is to be written next; nil: there is nothing left, and comes no more.
func (q *queue) take() []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.answers.batches)+len(q.mu.ends.batches) == 0 && !q.mu.closed {
		q.mu.changed.Wait()
	}
	q.mu.writing, q.mu.began = q.groupLocked(), time.Now()
	return q.mu.writing
}

// groupLocked takes out what is written at once: answers, and if no more of those wait, ends.
func (q *queue) groupLocked() (group []*batch) {
	size := 0
	for _, list := range []*batchQueue{&q.mu.answers, &q.mu.ends} {
		for len(list.batches) > 0 {
			if size += list.batches[0].size; size > writeBytes && len(group) > 0 {
				return group
			}
			group = append(group, list.pop())
		}
	}
	return group
}

// put writes lines, and returns how much of them.
func (q *queue) put(lines []byte) (int, error) {
	extra := 0
	if q.torn {
		lines, extra = append([]byte{'\n'}, lines...), 1
	}
	n, err := q.out.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	q.torn = n > 0 && lines[n-1] != '\n' || n == 0 && q.torn
	return n - extra, err
}

// settle says of each batch of a group what came of it: the first n bytes have been written.
func (q *queue) settle(group []*batch, ends []int, n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.writing = nil
	q.mu.writes++
	for i, b := range group {
		if ends[i] > n {
			b.err = cmp.Or(b.err, err)
		}
		switch {
		case b.forgone:
		case b.err != nil:
			q.noteLoss(b.err, b.events)
		default:
			q.metrics.events.Add(float64(b.events))
		}
		if b.tried != nil {
			close(b.tried)
		}
	}
	if err == nil {
		q.losses.noteWrite()
	}
}

// close waits for what is left, as long as that may take, and closes where it went. What then has
// not been written is lost.
func (q *queue) close() error {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.changed.Signal()
	q.mu.Unlock()
	defer q.losses.close()
	select {
	case <-q.done:
		return q.err
	case <-time.After(closeTimeout):
	}
	lost := q.abandon()
	return fmt.Errorf("it still could not be written after %v: %d events are lost", closeTimeout, lost)
}

// abandon gives up whatever is not on record, and counts it.
func (q *queue) abandon() (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range slices.Concat(q.mu.writing, q.mu.answers.batches, q.mu.ends.batches) {
		if !b.forgone {
			b.forgone, lost = true, lost+b.events
		}
	}
	q.mu.answers, q.mu.ends = batchQueue{}, batchQueue{}
	q.metrics.failures.Add(float64(lost))
	return lost
}
