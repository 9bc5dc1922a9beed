package mirror

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"spillway/internal/fakeapiserver"
	"spillway/internal/watchdog"
)

// stuckAt is a log that keeps the goroutine of one message until it is released, as a loop with a
// bug would stay where it is.
func stuckAt(message string) (log *zap.Logger, release chan struct{}) {
	release = make(chan struct{})
	hook := zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == message {
			<-release
		}
		return nil
	})
	nowhere := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()),
		zapcore.AddSync(io.Discard), zap.DebugLevel)
	return zap.New(nowhere, hook), release
}

// clocked is mirroringTo with a clock that watches the loops.
func clocked(t *testing.T, up *fakeapiserver.Server, log *zap.Logger, resources ...string) (*Set, *watchdog.Monitor) {
	t.Helper()
	clock := watchdog.New(zap.NewNop())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = clock.Run(ctx) // ends with its context
	}()
	t.Cleanup(func() { stop(); <-done })
	return mirroringTo(t, up, log, func(o *SetOptions) { o.Clock = clock }, resources...), clock
}

func stalledLoops(clock *watchdog.Monitor) string {
	var names []string
	for _, s := range clock.Stalled() {
		names = append(names, s.Loop)
	}
	return strings.Join(names, ", ")
}

// A mirror whose own loop does not move cannot say that its state gets old: the clock does. Nothing
// that reads the mirror waits for the loop, and all is well when it moves again.
func TestStuckMirrorHasItsAge(t *testing.T) {
	t.Parallel()
	log, release := stuckAt("watch ended")
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m, clock := clocked(t, up, log, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	age := func() time.Duration {
		age, _ := source.Age()
		return age
	}
	if age() != 0 || stalledLoops(clock) != "" {
		t.Errorf("while all is well: %v, %q", age(), stalledLoops(clock))
	}
	up.DropWatches(fakeapiserver.ConfigMaps)
	up.Create(fakeapiserver.ConfigMaps, "n", "b")
	eventually(t, "the loop to be named", func() bool { return stalledLoops(clock) == "mirror configmaps" })
	if age() < staleThreshold {
		t.Errorf("an answer would have the age %v", age())
	}
	if _, err := m.Ready(); err != nil {
		t.Error(err)
	}
	m.Describe()
	m.Statuses(time.Now(), nil)
	close(release)
	eventually(t, "the state to be kept current", func() bool { return age() == 0 && stalledLoops(clock) == "" })
}

// A state has its age as soon as no watch has been open for a while, though none has failed: the
// answer to the next one may never come.
func TestStateWithoutAWatchHasItsAge(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	one := m.all()[0]
	source := m.Find(fakeapiserver.ConfigMaps)
	up.Hang()
	one.reflector.Renew()
	eventually(t, "the state to be old", func() bool {
		age, _ := source.Age()
		return age >= staleThreshold
	})
	if err := up.Up(); err != nil {
		t.Fatal(err)
	}
}
