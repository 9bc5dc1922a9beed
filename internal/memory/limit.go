package memory

import (
	"os"
	"runtime/debug"
)

const (
	// limitVariable is Go's own word for its limit.
	limitVariable = "GOMEMLIMIT"
	// A budget is for more than Go: for the program itself, and for what the kernel holds of
	// connections, which counts against a container like all else (memory.stat's sock). programBytes
	// is about what of the program is in memory; goShare is Go's part of the rest.
	programBytes = 32 << 20
	goShare      = 0.85
	// limitStepFraction is the part of the budget, one in so many, by which a limit must change to be
	// set: the collector stops everything for that.
	limitStepFraction = 64
)

// Limit is what Go may use of a budget, which is the garbage collector's limit. Memory that others
// hold for the process is not Go's, so it lowers the limit. But below half of its usual size the
// collector would do nothing else.
type Limit struct {
	budget int64 // 0: the environment has set the limit
	bytes  int64
}

// SetLimit sets the garbage collector's limit, which is one for the whole process, to its part of a
// budget, unless the environment has set another one. nil: there is no limit.
func SetLimit(budget int64) *Limit {
	if os.Getenv(limitVariable) != "" {
		fixed := debug.SetMemoryLimit(-1) // which only reads it
		if fixed > maxBudget {
			return nil
		}
		return &Limit{bytes: fixed}
	}
	if budget == 0 {
		return nil
	}
	l := &Limit{budget: budget}
	l.Leave(0)
	return l
}

// Bytes is the limit.
func (l *Limit) Bytes() int64 { return l.bytes }

// Leave leaves room for the bytes that others hold. One goroutine calls it.
func (l *Limit) Leave(held int64) {
	if l.budget == 0 {
		return
	}
	usual := usualLimit(l.budget)
	limit := max(usual-max(held, 0), usual/2)
	step := l.budget / limitStepFraction
	if change := limit - l.bytes; change < -step || change > step {
		l.bytes = limit
		debug.SetMemoryLimit(limit)
	}
}

// usualLimit is what Go may use of a budget while others hold nothing.
func usualLimit(budget int64) int64 {
	return max(int64(goShare*float64(budget-programBytes)), budget/2)
}
