package upstream

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// failureLogDelay is how long a failure is not worth a line: a watch that has to be opened a second
// time is no outage.
const failureLogDelay = 2 * time.Second

// follower observes a Reflector that Follow runs: it logs an outage once, and ends the Reflector
// when upstream denies it.
type follower struct {
	log     *zap.Logger
	denied  func(error)
	denials Denials
	status  func() Status

	mu    sync.Mutex
	timer *time.Timer // until the failure is worth a line; nil while there is none
	said  bool        // it has had its line
}

func (f *follower) observer() Observer {
	return Observer{Failed: f.failed, Opened: f.well, Completed: f.well, FellBack: func(err error) {
		f.log.Warn("a LIST takes the place of a watch-list", zap.Error(err))
	}}
}

// failed leaves a denial to the caller of Follow, which is given it.
func (f *follower) failed(err error) {
	if f.denials.Final(err, f.status()) {
		f.denied(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil || Denied(err) {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(failureLogDelay, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.timer == timer {
			f.said = true
			f.log.Warn("upstream failed", zap.Error(err))
		}
	})
	f.timer = timer
}

// well ends a failure.
func (f *follower) well() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop()
	if f.said {
		f.said = false
		f.log.Info("upstream is of use again")
	}
}

// stop forgets a failure that has had no line. Callers hold mu.
func (f *follower) stop() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}
