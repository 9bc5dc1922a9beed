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
		pace       rate.Sometimes
		err        error // the last one
		unreported int   // events that were lost since the last log line
		due        bool  // a failure is to be logged
		failing    bool  // a failure was logged, and its end was not
		again      bool  // the end of the failure is to be logged
		closed     bool
	}
}

func newLossReporter(o Options) *lossReporter {
	t := &lossReporter{log: o.Log, failClosed: o.FailClosed, wakeCh: make(chan struct{}, 1), done: make(chan struct{})}
	t.mu.pace = rate.Sometimes{Interval: lossLogInterval}
	go t.run()
	return t
}

// lost notes that events were lost, or none yet but that an answer waited for writeTimeout.
func (t *lossReporter) lost(err error, events int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.err, t.mu.unreported = err, t.mu.unreported+events
	t.mu.pace.Do(func() {
		t.mu.due, t.mu.again = true, false
		t.wake()
	})
}

// written notes that something was written.
func (t *lossReporter) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.due || t.mu.failing {
		t.mu.again = true
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
		lines, closed = t.take()
		for _, line := range lines {
			line()
		}
	}
}

// take is what is to be logged now, at the end whatever has not been, and whether this is the end.
func (t *lossReporter) take() (lines []func(), closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.due || t.mu.closed && t.mu.unreported > 0 && !t.mu.again {
		err, lost := zap.Error(t.mu.err), zap.Int("lostEvents", t.mu.unreported)
		lines = append(lines, func() {
			t.log.Error("the audit log cannot be written", err, lost, zap.Bool("passingThrough", t.failClosed))
		})
		t.mu.due, t.mu.failing, t.mu.unreported = false, true, 0
	}
	if t.mu.again {
		lost := zap.Int("lostEvents", t.mu.unreported)
		lines = append(lines, func() { t.log.Info("the audit log is written again", lost) })
		t.mu.again, t.mu.failing, t.mu.unreported = false, false, 0
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
