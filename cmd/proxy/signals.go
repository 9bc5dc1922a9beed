package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// lifetime is the two ends of the process. drain is done with the first SIGTERM or SIGINT: stop
// accepting, turn readiness off, end streams one by one. stop is done when the drain period is
// over, or earlier when finish is called because nothing is left to drain: what still runs ends
// now. Stopping ends draining too. A second signal waits for neither: the process exits with code
// 1.
type lifetime struct {
	drain  context.Context
	stop   context.Context
	finish context.CancelFunc // idempotent; also gives the signals back to the runtime
}

// watchSignals takes SIGTERM and SIGINT from now on. When parent ends, drain and stop are done at
// once. The caller must call finish.
func watchSignals(parent context.Context, drainPeriod time.Duration, log *zap.Logger) lifetime {
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT)
	life := newLifetime(parent, drainPeriod, caught, log, os.Exit)
	finish := life.finish
	life.finish = func() {
		signal.Stop(caught)
		finish()
	}
	return life
}

func newLifetime(parent context.Context, drainPeriod time.Duration, caught <-chan os.Signal, log *zap.Logger,
	exit func(int)) lifetime {
	stop, finish := context.WithCancel(parent)
	drain, startDrain := context.WithCancel(stop)
	go func() {
		defer startDrain()
		select {
		case s := <-caught:
			log.Info("draining: ending streams one by one; a second signal stops at once",
				zap.Stringer("signal", s), zap.Duration("drainPeriod", drainPeriod))
		case <-stop.Done():
			return
		}
		startDrain()
		select {
		case s := <-caught:
			log.Warn("stopping at once: second signal", zap.Stringer("signal", s))
			exit(1)
		case <-time.After(drainPeriod):
			log.Info("drain period over: stopping")
		case <-stop.Done():
		}
		finish()
	}()
	return lifetime{drain: drain, stop: stop, finish: finish}
}
