package memory

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// world is a guard of 1000 bytes with three steps, at 700, 800 and 900, and what it is told.
type world struct {
	t     *testing.T
	guard *Guard
	now   time.Time
	usage Usage
	aside int64
	done  []string // what the steps were told since the last look
	held  int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1000, 0)}
	var steps []Step
	for i, at := range []float64{0.7, 0.8, 0.9} {
		name := fmt.Sprint(i)
		steps = append(steps, Step{
			Name: name, At: at, Gone: "it",
			Take: func() { w.done = append(w.done, "take "+name) }, Back: func() { w.done = append(w.done, "back "+name) },
		})
	}
	steps[1].Hold = func() { w.held++ }
	w.guard = NewGuard(&Limit{now: 1000}, func() int64 { return w.aside }, steps, zap.NewNop())
	w.guard.read = func() Usage { return w.usage }
	return w
}

// look lets the guard look after some time, and compares what it does.
func (w *world) look(after time.Duration, inUse int64, want ...string) {
	w.t.Helper()
	w.now = w.now.Add(after)
	w.usage.InUse, w.done = inUse, nil
	w.guard.look(w.now)
	if !slices.Equal(w.done, want) {
		w.t.Errorf("%d in use: did %q, want %q", inUse, w.done, want)
	}
}

func (w *world) collect() { w.usage.Cycles++ }

// Steps are taken in order, each when a collection has shown what the last one gave.
func TestStepsAreTaken(t *testing.T) {
	w := newWorld(t)
	w.look(0, 699)
	w.look(0, 700, "take 0")
	w.look(0, 850)
	w.collect()
	w.look(0, 850, "take 1")
	w.look(0, 950)
	w.collect()
	w.look(0, 899)
	w.look(0, 900, "take 2")
	w.collect()
	w.look(0, 2000)
	state := w.guard.State()
	if state.Limit != 1000 || state.InUse != 2000 || len(state.Steps) != 3 ||
		state.Steps[2] != (StepState{Name: "2", Taken: true, Times: 1}) {
		t.Errorf("%+v", state)
	}
	if w.held != 5 {
		t.Errorf("the second step was held at %d looks, want 5", w.held)
	}
}

// Far too much in use is no time to see what a step gave.
func TestStepsAreTakenAtOnce(t *testing.T) {
	w := newWorld(t)
	w.look(0, 790, "take 0")
	w.look(0, 920, "take 1")
	w = newWorld(t)
	w.look(0, 1001, "take 0", "take 1", "take 2")
}

// They are taken back in the opposite order, each when use has been well below it for a time, and
// taken again if that was wrong.
func TestStepsAreTakenBack(t *testing.T) {
	w := newWorld(t)
	w.look(0, 890, "take 0")
	w.collect()
	w.look(0, 890, "take 1")
	w.look(restFor, 701) // not low enough
	w.look(restFor, 701)
	w.look(restFor/2, 700)
	w.look(restFor/2, 700, "back 1")
	w.look(restFor/2, 600)
	w.look(restFor/4, 601) // that counts from here on
	w.look(restFor/2, 600)
	w.look(restFor/4, 600)
	w.collect()
	w.look(0, 800, "take 1")
	w.look(0, 0)
	w.look(restFor, 0, "back 1")
	w.look(restFor-1, 0)
	w.look(1, 0, "back 0")
	w.look(time.Hour, 0)
	if s := w.guard.State().Steps; s[0].Taken || s[1].Times != 2 {
		t.Errorf("%+v", s)
	}
}

// A guard runs until it is told to end, and reads what Go says.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		taken := false
		g := NewGuard(&Limit{now: 1}, func() int64 { return 0 },
			[]Step{{Name: "all", At: 1, Take: func() { taken = true }, Back: func() {}}}, zap.NewNop())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(2 * lookEvery)
		cancel()
		if err := <-ended; err != nil || !taken {
			t.Errorf("%v, taken: %v", err, taken)
		}
	})
}

// What has been let go of is not in use, and what is held is.
func TestRead(t *testing.T) {
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = 1
	}
	collect()
	with := Read()
	if held[len(held)-1] != 1 {
		t.Error("unreachable: it keeps what is held until here")
	}
	held = nil
	collect()
	without := Read()
	if gone := with.InUse - without.InUse; gone < 60<<20 || without.InUse <= 0 {
		t.Errorf("%d bytes in use with 64 MiB held, %d without", with.InUse, without.InUse)
	}
	if without.Cycles <= with.Cycles {
		t.Errorf("collections: %d, then %d", with.Cycles, without.Cycles)
	}
}
