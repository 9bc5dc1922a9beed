package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func collect() {
	runtime.GC()
	debug.FreeOSMemory()
}

// restored lets Go have as much memory as before once the test is over.
func restored(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
}

func TestLimitOfABudget(t *testing.T) {
	restored(t)
	t.Setenv(limitVariable, "")
	var budget int64 = 64 << 30
	limit := SetLimit(budget)
	usual := usualLimit(budget)
	f := func(aside, want int64) {
		t.Helper()
		limit.Leave(aside)
		if got := debug.SetMemoryLimit(-1); limit.Bytes() != want || got != want {
			t.Errorf("%d aside: %d, and Go has %d, want %d", aside, limit.Bytes(), got, want)
		}
	}
	f(0, usual)
	f(100<<20, usual) // too little to stop everything for
	f(4<<30, usual-4<<30)
	f(3500<<20, usual-4<<30)
	f(0, usual)
	f(60<<30, usual/2)
	f(-1, usual)
}

// What the environment says of the limit counts.
func TestLimitOfTheEnvironment(t *testing.T) {
	restored(t)
	const set = 8 << 30
	debug.SetMemoryLimit(set) // as Go has done at its start
	t.Setenv(limitVariable, "8GiB")
	limit := SetLimit(1 << 30)
	limit.Leave(1 << 30)
	if limit.Bytes() != set || debug.SetMemoryLimit(-1) != set {
		t.Errorf("%d", limit.Bytes())
	}
	t.Setenv(limitVariable, "off")
	debug.SetMemoryLimit(math.MaxInt64)
	if limit := SetLimit(1 << 30); limit != nil {
		t.Errorf("%+v although it is off", limit)
	}
}

func TestNoLimit(t *testing.T) {
	restored(t)
	t.Setenv(limitVariable, "")
	debug.SetMemoryLimit(math.MaxInt64)
	if limit := SetLimit(0); limit != nil {
		t.Errorf("%+v without a budget", limit)
	}
}

// A configured budget comes first; otherwise the limit of the control group counts, which is read
// without an error wherever tests run.
func TestBudget(t *testing.T) {
	if got, err := Budget(12345); got != 12345 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := Budget(0); got < 0 || got > maxBudget || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
