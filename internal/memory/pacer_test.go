package memory

import (
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// The collector runs more often while many arrive and for a while after. It is set once for that.
func TestPacer(t *testing.T) {
	t.Setenv(gcVariable, "")
	held, now := 1000, time.Unix(1000, 0)
	var told []int
	p := NewPacer(func() int { return held })
	p.set = func(percent int) { told = append(told, percent) }
	p.lastHeld = held
	look := func(more int, want ...int) {
		t.Helper()
		held, told, now = held+more, nil, now.Add(paceInterval)
		if p.look(now); !slices.Equal(told, want) {
			t.Errorf("after %d more: %d, want %d", more, told, want)
		}
	}
	look(leastGrowth - 1)
	look(leastGrowth, arrivalPercent)
	look(5 * leastGrowth)
	for range arrivalDuration / paceInterval {
		look(1)
	}
	look(0, normalPercent)
	look(0)
	look(-10 * leastGrowth)
	look(leastGrowth, arrivalPercent)
}

// What the operator has told the collector holds.
func TestPacerLeavesTheEnvironmentAlone(t *testing.T) {
	t.Setenv(gcVariable, "50")
	if p := NewPacer(func() int { return 0 }); p != nil || p.Run(t.Context()) != nil {
		t.Error("a pacer overrides the environment")
	}
	t.Setenv(gcVariable, "")
	before := debug.SetGCPercent(normalPercent)
	defer debug.SetGCPercent(before)
	NewPacer(func() int { return 0 }).set(arrivalPercent)
	if got := debug.SetGCPercent(normalPercent); got != arrivalPercent {
		t.Errorf("%d percent", got)
	}
}
