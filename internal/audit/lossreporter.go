package audit

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// lossLogInterval is the shortest interval between log lines about lost events.
const lossLogInterval = 10 * time.Second

// lossReporter logs that events are lost, at intervals, and when that is over.
//
// Invariant: a request that loses an event does not wait for the process's own log. That may block
// when the audit log does: stdout and stderr often have one reader. So a goroutine logs the sum of
// what was lost since its last line.
type lossReporter struct {
	// Static after construction.
	log        *zap.Logger
	failClosed bool
	wakeCh     chan struct{} // one slot: there is something to log
	done       chan struct{} // closed when nothing is logged any more

	mu struct {
		sync.Mutex
		pace       rate.Sometimes // of lines about losses
		err        error          // of the last loss
		unreported int            // events that were lost since the last line
		isLossDue  bool           // a line about losses is to be logged
		isEndDue   bool           // the line that the log is written again is to be logged, last
		isFailing  bool           // the last line was about losses
		closed     bool
	}
}

func newLossReporter(o Options) *lossReporter {
	t := &lossReporter{log: o.Log, failClosed: o.FailClosed, wakeCh: make(chan struct{}, 1), done: make(chan struct{})}
	t.mu.pace = rate.Sometimes{Interval: lossLogInterval}
	go t.run()
	return t
}

// noteLoss notes that events were lost, or none yet but that an answer waited for writeTimeout.
func (t *lossReporter) noteLoss(err error, events int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.err, t.mu.unreported = err, t.mu.unreported+events
	t.mu.pace.Do(func() {
		t.mu.isLossDue, t.mu.isEndDue = true, false
		t.wake()
	})
}

// noteWrite notes that something was written.
func (t *lossReporter) noteWrite() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.isLossDue || t.mu.isFailing {
		t.mu.isEndDue = true
		t.wake()
	}
}

func (t *lossReporter) wake() {
	select {
	case t.wakeCh <- struct{}{}:
	default:
	}
}

func (t *lossReporter) run() {
	defer close(t.done)
	for closed := false; !closed; {
		<-t.wakeCh
		var lines []func()
		lines, closed = t.takeLines()
		for _, line := range lines {
			line()
		}
	}
}

// takeLines returns what is to be logged now, and whether nothing follows. Then it includes the
// losses that would have waited for their interval.
func (t *lossReporter) takeLines() (lines []func(), closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.isLossDue || t.mu.closed && t.mu.unreported > 0 && !t.mu.isEndDue {
		err, lost := zap.Error(t.mu.err), zap.Int("lostEvents", t.mu.unreported)
		lines = append(lines, func() {
			t.log.Error("the audit log cannot be written", err, lost, zap.Bool("passingThrough", t.failClosed))
		})
		t.mu.isLossDue, t.mu.isFailing, t.mu.unreported = false, true, 0
	}
	if t.mu.isEndDue {
		lost := zap.Int("lostEvents", t.mu.unreported)
		lines = append(lines, func() { t.log.Info("the audit log is written again", lost) })
		t.mu.isEndDue, t.mu.isFailing, t.mu.unreported = false, false, 0
	}
	return lines, t.mu.closed
}

// close logs the rest, and waits for that no longer than writeTimeout.
func (t *lossReporter) close() {
	t.mu.Lock()
	t.mu.closed = true
	t.wake()
	t.mu.Unlock()
	select {
	case <-t.done:
	case <-time.After(writeTimeout):
	}
}
