package memory

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// world is a guard of 1000 bytes, whose steps are at 740, 800 and 880, and what it reads.
type world struct {
	t       *testing.T
	guard   *Guard
	now     time.Time
	usage   Usage
	applied []Step // since the last look
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1000, 0)}
	w.guard = NewGuard(&Limit{bytes: 1000}, func() int64 { return 0 },
		func(s Step) { w.applied = append(w.applied, s) }, zap.NewNop())
	w.guard.read = func() Usage { return w.usage }
	return w
}

// look lets the guard look after some time, and compares what it applies.
func (w *world) look(after time.Duration, inUse int64, want ...Step) {
	w.t.Helper()
	w.now = w.now.Add(after)
	w.usage.InUse, w.applied = inUse, nil
	w.guard.look(w.now)
	if !slices.Equal(w.applied, want) {
		w.t.Errorf("%d in use: applied %v, want %v", inUse, w.applied, want)
	}
}

func (w *world) collect() { w.usage.Cycles++ }

func TestStepsAreInOrder(t *testing.T) {
	var names []string
	last := 0.0
	for s := DropDerived; s < stepCount; s++ {
		names = append(names, s.String())
		if at := steps[s].threshold; at <= last || at > 1 {
			t.Errorf("%s at %v, after %v", s, at, last)
		} else {
			last = at
		}
	}
	if !slices.Equal(names, []string{"derived", "history", "evict"}) {
		t.Errorf("the order is %v", names)
	}
}

// Steps are taken in order, each when a collection has shown what the last one freed, and applied
// at every look while they are taken.
func TestStepsAreTaken(t *testing.T) {
	w := newWorld(t)
	w.look(0, 739)
	w.look(0, 740, DropDerived)
	w.look(0, 850, DropDerived)
	w.collect()
	w.look(0, 850, ShortenHistory)
	w.look(0, 950, ShortenHistory)
	w.collect()
	w.look(0, 879, ShortenHistory)
	w.look(0, 880, RefuseAndEvict)
	w.collect()
	w.look(0, 2000, RefuseAndEvict)
	state := w.guard.State()
	if state != (GuardState{Limit: 1000, InUse: 2000, Step: RefuseAndEvict, Times: [...]uint64{0, 1, 1, 1}}) {
		t.Errorf("%+v", state)
	}
	if taken := state.Taken(); !slices.Equal(taken, []string{"derived", "history", "evict"}) {
		t.Errorf("taken: %v", taken)
	}
}

// Where far too much is in use, no step waits for a collection.
func TestStepsAreTakenAtOnce(t *testing.T) {
	w := newWorld(t)
	w.look(0, 790, DropDerived)
	w.look(0, 901, ShortenHistory)
	w = newWorld(t)
	w.look(0, 981, RefuseAndEvict)
	if times := w.guard.State().Times; times != [...]uint64{0, 1, 1, 1} {
		t.Errorf("taken %v times", times)
	}
}

// Steps are taken back in the opposite order, each when use has been well below it for a time, and
// taken again if that was wrong.
func TestStepsAreTakenBack(t *testing.T) {
	w := newWorld(t)
	w.look(0, 870, DropDerived)
	w.collect()
	w.look(0, 870, ShortenHistory)
	w.look(calmInterval, 701, ShortenHistory) // not low enough
	w.look(calmInterval, 701, ShortenHistory)
	w.look(calmInterval/2, 700, ShortenHistory)
	w.look(calmInterval/2, 700, DropDerived)
	w.look(calmInterval/2, 639, DropDerived)
	w.look(calmInterval/4, 641, DropDerived) // the time counts from here on
	w.look(calmInterval/2, 639, DropDerived)
	w.look(calmInterval/4, 639, DropDerived)
	w.collect()
	w.look(0, 800, ShortenHistory)
	w.look(0, 0, ShortenHistory)
	w.look(calmInterval, 0, DropDerived)
	w.look(calmInterval-1, 0, DropDerived)
	w.look(1, 0, None)
	w.look(time.Hour, 0)
	if s := w.guard.State(); s.Step != None || s.Times[ShortenHistory] != 2 || len(s.Taken()) != 0 {
		t.Errorf("%+v", s)
	}
}

// The guard runs until its context ends, and reads the runtime's figures.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		taken := None
		g := NewGuard(&Limit{bytes: 1}, func() int64 { return 0 }, func(s Step) { taken = s }, zap.NewNop())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(2 * lookInterval)
		cancel()
		if err := <-ended; err != nil || taken != RefuseAndEvict {
			t.Errorf("%v, taken: %v", err, taken)
		}
	})
}

// Freed memory is not in use, and reachable memory is.
func TestRead(t *testing.T) {
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = 1
	}
	collect()
	with := Read()
	if held[len(held)-1] != 1 {
		t.Error("unreachable: it keeps the bytes reachable until here")
	}
	collect()
	without := Read()
	if gone := with.InUse - without.InUse; gone < 60<<20 || without.InUse <= 0 {
		t.Errorf("%d bytes in use with 64 MiB held, %d without", with.InUse, without.InUse)
	}
	if without.Cycles <= with.Cycles {
		t.Errorf("collections: %d, then %d", with.Cycles, without.Cycles)
	}
}
