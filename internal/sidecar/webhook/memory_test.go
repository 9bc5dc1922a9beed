package webhook

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/memory"
)

// Rules that are known after the start, and those that come later, get memory of their own.
func TestMemoryLimitFollowsTheRules(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	synctest.Test(t, func(t *testing.T) {
		var rules atomic.Int64
		limit := &memoryLimit{countRules: func() int { return int(rules.Load()) }}
		if got, want := limit.fit(), memory.SetLimit(budgetBytes).Bytes(); got != want {
			t.Errorf("without rules: %d, want %d", got, want)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go limit.follow(ctx)
		time.Sleep(time.Second) // so that it is not fitted while this test looks
		for _, n := range []int64{10_000, 30_000, 20_000} {
			want := memory.SetLimit(budgetBytes + n*ruleBytes).Bytes()
			debug.SetMemoryLimit(1 << 40)
			rules.Store(n)
			time.Sleep(fitInterval)
			if got := debug.SetMemoryLimit(-1); got != want {
				t.Errorf("%d rules: %d, want %d", n, got, want)
			}
			debug.SetMemoryLimit(1 << 40)
			time.Sleep(fitInterval)
			if got := debug.SetMemoryLimit(-1); got != 1<<40 {
				t.Errorf("%d rules again: it is set to %d", n, got)
			}
		}
	})
}

// The container's limit counts if it is less.
func TestMemoryLimitOfTheContainer(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	const container = 96 << 20
	for rules, bytes := range map[int]int64{0: budgetBytes, 10_000: container} {
		limit := &memoryLimit{containerBytes: container, countRules: func() int { return rules }}
		if got, want := limit.fit(), memory.SetLimit(bytes).Bytes(); got != want {
			t.Errorf("%d rules: %d, want %d", rules, got, want)
		}
	}
}
