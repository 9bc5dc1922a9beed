package watchdog

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// onClock runs a clock in virtual time.
func onClock(t *testing.T, test func(t *testing.T, c *Monitor, logs *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		c := New(zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = c.Run(ctx) }()
		test(t, c, logs)
	})
}

func messages(logs *observer.ObservedLogs) []string {
	var all []string
	for _, e := range logs.All() {
		all = append(all, e.Message)
	}
	return all
}

// figure is a metric of one kind of loops.
func figure(t *testing.T, c *Monitor, name string, kind LoopKind) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(c))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == string(kind) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %s", name, kind)
	return 0
}

// A loop that stays in one piece of work is stalled at its limit, has one line, is shown and
// counted, and has another line when it moves.
func TestLoopThatDoesNotMoveIsNamed(t *testing.T) {
	onClock(t, func(t *testing.T, c *Monitor, logs *observer.ObservedLogs) {
		const limit = 2 * time.Second
		var l Loop
		w := c.Watch(Mirror, "pods", limit, l.Progress)
		l.Work()
		time.Sleep(limit - tick)
		if !w.StalledSince().IsZero() {
			t.Error("stalled before its limit")
		}
		time.Sleep(3 * tick)
		if since := w.StalledSince(); time.Since(since) < limit || time.Since(since) > limit+3*tick {
			t.Errorf("stalled since %v, at %v", since, time.Now())
		}
		time.Sleep(time.Minute)
		const want = "[!]loop mirror pods has not moved for 1m2s"
		if lines := c.Describe(); len(lines) != 1 || !strings.HasPrefix(lines[0], want) {
			t.Errorf("%q", lines)
		}
		if got := figure(t, c, "spillway_loop_stalls_total", Mirror); got != 1 {
			t.Errorf("%v stalls counted", got)
		}
		if got := figure(t, c, "spillway_stalled_loops", Mirror); got != 1 {
			t.Errorf("%v loops stalled", got)
		}
		l.Work() // the next piece
		time.Sleep(2 * tick)
		if !w.StalledSince().IsZero() || len(c.Stalled()) != 0 {
			t.Errorf("it moves: %v", c.Stalled())
		}
		if got := messages(logs); !slices.Equal(got, []string{"a loop does not move", "a loop moves again"}) {
			t.Errorf("%q", got)
		}
	})
}

// A loop that rests, that moves, or that has ended is none that does not move.
func TestLoopsThatMoveOrRestAreNotNamed(t *testing.T) {
	onClock(t, func(t *testing.T, c *Monitor, logs *observer.ObservedLogs) {
		var resting, moving, ended Loop
		c.Watch(Writer, "1", time.Second, resting.Progress)
		c.Watch(Writer, "2", time.Second, moving.Progress)
		gone := c.Watch(Writer, "3", time.Second, ended.Progress)
		ended.Work()
		gone.End()
		resting.Work()
		resting.Rest()
		for range 100 {
			moving.Work()
			time.Sleep(tick)
		}
		if len(c.Stalled()) != 0 || logs.Len() != 0 {
			t.Errorf("%v %q", c.Stalled(), messages(logs))
		}
	})
}

// Progress is odd while a loop works and changes with each piece of work, however Work and Rest
// follow each other.
func TestLoopProgress(t *testing.T) {
	var l Loop
	last := uint64(0)
	for i, work := range []bool{true, true, false, false, true, false} {
		if work {
			l.Work()
		} else {
			l.Rest()
		}
		turns, working := l.Progress()
		if working != work || work && turns <= last {
			t.Errorf("step %d: %d %v", i, turns, working)
		}
		last = turns
	}
}

func BenchmarkLoop(b *testing.B) {
	var l Loop
	for b.Loop() {
		l.Work()
		l.Rest()
	}
}
