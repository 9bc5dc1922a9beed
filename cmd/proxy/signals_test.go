package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestLifetime(t *testing.T) {
	done := func(ctx context.Context) bool { return ctx.Err() != nil }
	begin := func(parent context.Context, drainPeriod time.Duration) (lifetime, chan<- os.Signal, <-chan int) {
		caught, exits := make(chan os.Signal, 2), make(chan int, 1)
		return newLifetime(parent, drainPeriod, caught, zap.NewNop(), func(code int) { exits <- code }), caught, exits
	}

	t.Run("the first signal drains, finish stops", func(t *testing.T) {
		life, caught, _ := begin(t.Context(), time.Hour)
		if done(life.drain) || done(life.stop) {
			t.Fatal("over before it began")
		}
		caught <- syscall.SIGTERM
		<-life.drain.Done()
		if done(life.stop) {
			t.Error("stopped before the drain period was over")
		}
		life.finish()
		life.finish()
		<-life.stop.Done()
	})
	t.Run("the end of the drain period stops", func(t *testing.T) {
		life, caught, _ := begin(t.Context(), 0)
		caught <- syscall.SIGINT
		<-life.drain.Done()
		<-life.stop.Done()
	})
	t.Run("the second signal exits", func(t *testing.T) {
		_, caught, exits := begin(t.Context(), time.Hour)
		caught <- syscall.SIGTERM
		caught <- syscall.SIGTERM
		if code := <-exits; code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("the parent ends both", func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		life, _, _ := begin(parent, time.Hour)
		cancel()
		<-life.drain.Done()
		<-life.stop.Done()
	})
	t.Run("finish without a signal ends both", func(t *testing.T) {
		life, _, _ := begin(t.Context(), time.Hour)
		life.finish()
		<-life.drain.Done()
		<-life.stop.Done()
	})
}

func TestWatchSignalsTakesRealSignals(t *testing.T) {
	life := watchSignals(t.Context(), time.Hour, zap.NewNop())
	defer life.finish()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-life.drain.Done()
}
