package memory

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Step is a step of degradation. Each step includes those before it.
type Step int

const (
	None           Step = iota
	DropDerived         // drop bytes that can be made again: encodings, compressed bytes, frames
	ShortenHistory      // keep no more history than reconnecting clients need
	RefuseAndEvict      // refuse what takes more memory, and evict slow clients
	stepCount
)

// steps are the steps by number. The collector needs some room, or it runs all the time; it has
// enough until three quarters of the limit are in use.
var steps = [stepCount]struct {
	name      string  // the value of the metrics' label
	threshold float64 // the part of the limit in use at which the step is taken
	effect    string  // for the log
}{
	DropDerived:    {"derived", 0.74, "encodings, most compressed bytes and frames of few watches are not kept"},
	ShortenHistory: {"history", 0.80, "no more history is kept than of 75s"},
	RefuseAndEvict: {"evict", 0.88, "no more resources are mirrored on demand, large answers are made one after " +
		"another, and heavy selectors and slow clients are evicted"},
}

// String is the step's name in metrics, logs and the status page.
func (s Step) String() string { return steps[s].name }

const (
	// lookInterval is short enough for a herd, whose memory grows within a second.
	lookInterval = 100 * time.Millisecond
	// A step is taken back once use has been slackFraction of the limit below its threshold for
	// calmInterval. What was dropped is made again then, which takes memory.
	slackFraction = 0.10
	calmInterval  = 15 * time.Second
	// urgentFraction of the limit above its threshold, a step is taken without a collection: memory
	// grows faster than collections run.
	urgentFraction = 0.10
)

// Guard compares the memory in use with the limit ten times a second and takes steps. The next step
// waits for a garbage collection to show what the last one freed, unless far too much is in use.
// Steps are taken back one at a time, in the opposite order.
//
// The limit is not left to the collector alone: near its limit it runs all the time and frees
// nothing, so caches must go first.
type Guard struct {
	// Static after construction.
	limit   *Limit
	outside func() int64 // bytes that the kernel holds for the process
	degrade func(Step)
	read    func() Usage
	log     *zap.Logger

	mu        sync.Mutex
	state     GuardState
	cycles    uint64    // collections when the last step was taken
	lastAbove time.Time // when use was last too high to take the last step back
}

// GuardState is the guard's state.
type GuardState struct {
	Limit, InUse int64
	Step         Step
	Times        [stepCount]uint64 // how often each step was taken
}

// NewGuard makes a guard of a limit. outside returns the bytes that the kernel holds for the
// process. The guard repeats degrade while a step is taken, because mirrors and watches begin in
// between, and calls it once with None when no step is taken any more.
func NewGuard(limit *Limit, outside func() int64, degrade func(Step), log *zap.Logger) *Guard {
	return &Guard{limit: limit, outside: outside, degrade: degrade, read: Read, log: log}
}

// Run looks until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			g.look(now)
		}
	}
}

// look decides on steps, and applies the last one.
func (g *Guard) look(now time.Time) {
	before, after := g.decide(now)
	if before != None || after != None {
		g.degrade(after)
	}
}

// decide takes steps, or takes one back, and returns the last step before and after.
func (g *Guard) decide(now time.Time) (before, after Step) {
	usage := g.read()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit.Leave(g.outside())
	s := &g.state
	before = s.Step
	s.Limit, s.InUse = g.limit.Bytes(), usage.InUse
	part := float64(s.InUse) / float64(s.Limit)
	for next := s.Step + 1; next < stepCount && g.isDueLocked(next, part, usage.Cycles); next++ {
		s.Step, g.cycles, g.lastAbove = next, usage.Cycles, now
		s.Times[next]++
		g.logStepLocked("memory is short: "+steps[next].effect, next)
	}
	switch {
	case s.Step == None:
	case part > steps[s.Step].threshold-slackFraction:
		g.lastAbove = now
	case now.Sub(g.lastAbove) >= calmInterval:
		g.logStepLocked("memory suffices again: step taken back", s.Step)
		s.Step, g.lastAbove = s.Step-1, now
	}
	return before, s.Step
}

// isDueLocked reports that a step is to be taken.
func (g *Guard) isDueLocked(s Step, part float64, cycles uint64) bool {
	over := part - steps[s].threshold
	return over >= urgentFraction || over >= 0 && (s == DropDerived || cycles > g.cycles)
}

// logStepLocked logs about a step.
func (g *Guard) logStepLocked(what string, s Step) {
	g.log.Warn(what, zap.Stringer("step", s), zap.Int64("inUse", g.state.InUse), zap.Int64("limit", g.state.Limit))
}

// State returns the guard's state.
func (g *Guard) State() GuardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Limit = g.limit.Bytes()
	return s
}

// Taken are the names of the steps that are taken.
func (s GuardState) Taken() []string {
	taken := []string{}
	for i := DropDerived; i <= s.Step; i++ {
		taken = append(taken, i.String())
	}
	return taken
}
