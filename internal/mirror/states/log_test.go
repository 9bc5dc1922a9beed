package states

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Ten mirrors whose watches are cut each 20 s, one after another, for ten minutes.
func TestMirrorsThatAreCutEachTwentySecondsHaveAFewLinesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.DebugLevel)
		log := NewLogLimiter(zap.New(core))
		ctx := t.Context()
		go log.Run(ctx)
		var machines []*Machine
		for i := range 10 {
			name := fmt.Sprintf("kind%d", i)
			m := NewMachine(func(tr Transition) { log.Log(name, "v1", tr) })
			m.Complete()
			machines = append(machines, m)
		}
		if n := lines.FilterMessage("the mirror is synced").Len(); n != 10 {
			t.Errorf("%d mirrors are said to be synced", n)
		}
		lines.TakeAll()
		most, counted := 0, 0
		for range 10 {
			for range 3 {
				for _, m := range machines {
					m.Interrupt(Cause{WhyWatchEnded, "unexpected EOF"})
					time.Sleep(100 * time.Millisecond)
					m.Open()
				}
				time.Sleep(19 * time.Second)
			}
			written := lines.TakeAll()
			most = max(most, len(written))
			for _, line := range written {
				if n, ok := line.ContextMap()["count"].(int64); ok {
					counted += int(n)
				}
			}
		}
		t.Logf("at most %d lines a minute, which count %d transitions", most, counted)
		if most > 6 || counted < 500 {
			t.Errorf("%d lines in a minute, %d of 600 transitions are counted", most, counted)
		}
	})
}

// A degradation that was over is logged at once when it begins again.
func TestALineFollowsAQuietPeriodAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.DebugLevel)
		log := NewLogLimiter(zap.New(core))
		m := NewMachine(func(tr Transition) { log.Log("pods", "v1", tr) })
		for i := range 3 {
			m.Complete()
			lines.TakeAll()
			m.Interrupt(Cause{WhyUnreachable, "connection refused"})
			if got := lines.TakeAll(); len(got) != 1 || got[0].ContextMap()["reason"] != "connection refused" ||
				got[0].ContextMap()["resource"] != "pods" {
				t.Errorf("round %d: %v", i, got)
			}
			time.Sleep(2 * time.Minute)
			log.Flush()
			if got := lines.TakeAll(); len(got) != 0 {
				t.Errorf("round %d: a period in which nothing happened has lines: %v", i, got)
			}
		}
	})
}

// Each resource that is refused has its line at once, with its own reason. Repetitions are counted,
// and where their reasons differ the line names each.
func TestEachRefusedResourceHasALineAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.DebugLevel)
		log := NewLogLimiter(zap.New(core))
		machines := map[string]*Machine{}
		refuse := func(name string) {
			m := machines[name]
			if m == nil {
				m = NewMachine(func(tr Transition) { log.Log(name, "v1", tr) })
				machines[name] = m
			}
			m.Complete()
			m.Lose(Cause{WhyForbidden, name + " is forbidden"}, time.Now().Add(time.Second))
		}
		names := []string{"pods", "nodes", "secrets"}
		for _, name := range names {
			refuse(name)
		}
		refused := lines.FilterMessage("the resource is not mirrored for now, its requests pass through").TakeAll()
		for i, line := range refused {
			if got := line.ContextMap(); got["resource"] != names[i] || got["reason"] != names[i]+" is forbidden" {
				t.Errorf("line %d: %v", i, got)
			}
		}
		if len(refused) != len(names) {
			t.Errorf("%d lines for %d resources", len(refused), len(names))
		}
		lines.TakeAll()
		for range 10 {
			refuse("pods")
			refuse("nodes")
		}
		time.Sleep(time.Minute)
		log.Flush()
		counted := lines.FilterMessage("the resource is not mirrored for now, its requests pass through").TakeAll()
		if len(counted) != 1 {
			t.Fatalf("%d lines about repetitions", len(counted))
		}
		got := counted[0].ContextMap()
		if got["count"] != int64(20) || got["reason"] != nil ||
			fmt.Sprint(got["reasons"]) != "[pods: pods is forbidden nodes: nodes is forbidden]" {
			t.Errorf("repetitions: %v", got)
		}
	})
}

// An attempt that is due already is now, and not before now.
func TestALineHasNoNegativePause(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	log := NewLogLimiter(zap.New(core))
	m := NewMachine(func(tr Transition) { log.Log("pods", "v1", tr) })
	m.Complete()
	m.Refuse(Cause{WhyRefused, "no"}, time.Now().Add(-2*time.Second))
	refused := lines.FilterMessage("the resource is not mirrored for now, its requests pass through").All()
	if len(refused) != 1 || refused[0].ContextMap()["retryAfter"] != time.Duration(0) {
		t.Errorf("%v", refused)
	}
}

// A cluster in which Spillway may read nothing has a bounded number of lines.
func TestLinesOfRefusedResourcesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zapcore.DebugLevel)
		log := NewLogLimiter(zap.New(core))
		for i := range 500 {
			m := NewMachine(func(tr Transition) { log.Log(fmt.Sprint("kind", i), "v1", tr) })
			m.Lose(Cause{WhyForbidden, "forbidden"}, time.Now())
		}
		time.Sleep(time.Minute)
		log.Flush()
		if n := lines.Len(); n != refusedResourcesLimit+1 {
			t.Errorf("%d lines", n)
		}
	})
}
