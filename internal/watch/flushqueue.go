package watch

import "time"

// flusher sends what slots have offered to it: several of them may share one.
type flusher interface{ Flush() }

// flushQueue is the connections of HTTP/2 whose slots have offered something in their turns. Each
// is flushed once for several turns. Its writer's goroutine uses it alone.
type flushQueue struct {
	queued       map[flusher]struct{}
	order        []flusher // the same
	firstAddedAt monotonicTime
}

const (
	// flushLimit is how many connections wait at most for other slots' turns, and flushDelay how
	// long, while the writer's queue does not get empty.
	flushLimit = 64
	flushDelay = 2 * time.Millisecond
)

func newFlushQueue() flushQueue { return flushQueue{queued: map[flusher]struct{}{}} }

func (q *flushQueue) add(c flusher) {
	if _, found := q.queued[c]; found {
		return
	}
	if len(q.order) == 0 {
		q.firstAddedAt = now()
	}
	q.queued[c] = struct{}{}
	q.order = append(q.order, c)
}

func (q *flushQueue) isFull() bool { return len(q.order) >= flushLimit }

// isOverdue reports that the first connection has waited for as long as it may.
func (q *flushQueue) isOverdue() bool {
	return len(q.order) > 0 && now().since(q.firstAddedAt) >= flushDelay
}

// flush sends what slots have put into the outboxes of their connections.
func (q *flushQueue) flush() {
	for _, c := range q.order {
		c.Flush()
	}
	clear(q.order)
	clear(q.queued)
	q.order = q.order[:0]
}
