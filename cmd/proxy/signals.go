package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// endTimeout is how long the process may take to end after its drain period: longer than its
// connections, its audit log and its spans have together. The log is written after that, and has a
// bound of its own.
const endTimeout = 12 * time.Second

// lifetime is the two ends of the process:
//
//   - drain is done with the first SIGTERM or SIGINT: stop accepting, turn readiness off, end
//     streams one by one.
//   - stop is done when the drain period is over, or earlier when finish is called because nothing
//     is left to drain. What still runs ends now. If drain is not done yet, it is done as well.
//
// A second signal waits for neither: the process exits with code 1. It also does that endTimeout
// after stop, whatever hangs.
type lifetime struct {
	drain  context.Context
	stop   context.Context
	finish context.CancelFunc // idempotent; also gives the signals back to the runtime
	// release is finish, and calls off the forced end: the caller has nothing left that could hang.
	release context.CancelFunc
}

// watchSignals takes SIGTERM and SIGINT from now on. When parent ends, drain and stop are done at
// once. The caller must call release.
func watchSignals(parent context.Context, drainPeriod time.Duration, log *zap.Logger) lifetime {
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT)
	life := newLifetime(parent, drainPeriod, caught, log, os.Exit)
	finish, release := life.finish, life.release
	life.finish = func() {
		signal.Stop(caught)
		finish()
	}
	life.release = func() {
		signal.Stop(caught)
		release()
	}
	return life
}

func newLifetime(parent context.Context, drainPeriod time.Duration, caught <-chan os.Signal, log *zap.Logger,
	exit func(int)) lifetime {
	stop, cancel := context.WithCancel(parent)
	drain, startDrain := context.WithCancel(stop)
	exitNow := func() {
		_ = log.Sync() // which has a bound
		exit(1)
	}
	forced := &forcedEnd{exit: func() {
		log.Error("exiting at once: something keeps the process from ending")
		exitNow()
	}}
	finish := func() {
		forced.within(endTimeout)
		cancel()
	}
	go func() {
		defer startDrain()
		select {
		case s := <-caught:
			forced.within(drainPeriod + endTimeout)
			log.Info("draining: ending streams one by one; a second signal stops at once",
				zap.Stringer("signal", s), zap.Duration("drainPeriod", drainPeriod))
		case <-stop.Done():
			return
		}
		startDrain()
		select {
		case s := <-caught:
			log.Warn("stopping at once: second signal", zap.Stringer("signal", s))
			exitNow()
		case <-time.After(drainPeriod):
			log.Info("drain period over: stopping")
		case <-stop.Done():
		}
		finish()
	}()
	return lifetime{drain: drain, stop: stop, finish: finish, release: func() {
		forced.callOff()
		cancel()
	}}
}

// forcedEnd exits the process at a time, in a goroutine that waits for nothing else. The time can
// only become earlier.
type forcedEnd struct {
	exit func() // static

	mu    sync.Mutex
	at    time.Time
	timer *time.Timer // nil: there is no such time
	off   bool
}

// within sets the time, unless it is nearer already, or called off.
func (f *forcedEnd) within(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now().Add(d)
	switch {
	case f.off:
	case f.timer == nil:
		f.at, f.timer = at, time.AfterFunc(d, f.exit)
	case at.Before(f.at):
		f.at = at
		f.timer.Reset(d)
	}
}

// callOff lets the process live.
func (f *forcedEnd) callOff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
	if f.timer != nil {
		f.timer.Stop()
	}
}
