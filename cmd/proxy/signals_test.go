package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"spillway/internal/logging"
)

func TestLifetime(t *testing.T) {
	done := func(ctx context.Context) bool { return ctx.Err() != nil }
	begin := func(parent context.Context, drainPeriod time.Duration) (lifetime, chan<- os.Signal, <-chan int) {
		caught, exits := make(chan os.Signal, 2), make(chan int, 1)
		life := newLifetime(parent, drainPeriod, caught, zap.NewNop(), func(code int) { exits <- code })
		t.Cleanup(life.release)
		return life, caught, exits
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
	defer life.release()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-life.drain.Done()
}

// A process that hangs while it ends is ended: endTimeout after its drain period, or after it was
// to stop without a signal, though its log is not read.
func TestWhatHangsIsEnded(t *testing.T) {
	for name, end := range map[string]struct {
		by    func(life lifetime, caught chan<- os.Signal)
		after time.Duration
	}{
		"a signal": {func(_ lifetime, caught chan<- os.Signal) { caught <- syscall.SIGTERM }, time.Minute + endTimeout},
		"a signal, and nothing is left to drain": {func(life lifetime, caught chan<- os.Signal) {
			caught <- syscall.SIGTERM
			<-life.drain.Done()
			life.finish()
		}, endTimeout},
		"a failure": {func(life lifetime, _ chan<- os.Signal) { life.finish() }, endTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unread := make(chan struct{})
				sink := logging.NewOutput(writerFunc(func(p []byte) (int, error) { <-unread; return len(p), nil }))
				encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
				log := zap.New(zapcore.NewCore(encoder, sink, zap.InfoLevel))
				caught, exits := make(chan os.Signal, 2), make(chan int, 1)
				began := time.Now()
				life := newLifetime(t.Context(), time.Minute, caught, log, func(code int) { exits <- code })
				end.by(life, caught)
				if code := <-exits; code != 1 || time.Since(began) > end.after+2*time.Second {
					t.Errorf("exit code %d after %v", code, time.Since(began))
				}
				close(unread)
			})
		})
	}
}

// What ends by itself is not ended by force.
func TestWhatEndsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caught := make(chan os.Signal, 2)
		life := newLifetime(t.Context(), time.Minute, caught, zap.NewNop(), func(int) { t.Error("exits") })
		caught <- syscall.SIGTERM
		<-life.drain.Done()
		life.finish()
		life.release()
		life.finish()
		time.Sleep(time.Hour)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
