package upstream

import (
	"sync/atomic"

	"go.uber.org/zap"
)

// follower is who observes a Reflector that Follow runs: it logs an outage once, and ends the
// Reflector when upstream denies it.
type follower struct {
	log     *zap.Logger
	denied  func(error)
	denials Denials
	status  func() Status

	failing atomic.Bool
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
	if !Denied(err) && f.failing.CompareAndSwap(false, true) {
		f.log.Warn("upstream failed", zap.Error(err))
	}
}

func (f *follower) well() {
	if f.failing.CompareAndSwap(true, false) {
		f.log.Info("upstream is of use again")
	}
}
