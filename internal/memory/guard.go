package memory

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Step is one thing that can be done without.
type Step struct {
	Name string // a metric's label
	Gone string // what is given up, for the log: "encodings are not kept"
	// At is the part of the limit in use from which on it is given up.
	At float64
	// Take gives it up, and Back takes it back. All are called by the guard's goroutine alone.
	Take, Back func()
	// Hold is called at every look while it is given up, from the first one on, for what comes
	// meanwhile; nil: nothing has to be done.
	Hold func()
}

const (
	// lookEvery is how often the guard looks: often enough for a herd, whose memory grows within a
	// second.
	lookEvery = 100 * time.Millisecond
	// slack is how far below a step's At use must have fallen before the step is taken back, as a part
	// of the limit; and restFor for how long. What is given up is wanted again by those who have it
	// made anew, which takes memory.
	slack   = 0.10
	restFor = 15 * time.Second
	// hurry is how far use may be above a step's At before that is taken at once: memory grows faster
	// than collections come.
	hurry = 0.10
)

// Guard watches what is in use and takes its steps. It takes one at a time, and the next only when
// a garbage collection has shown what the last one gave, unless there is far too much in use; it
// takes them back one at a time, in the opposite order.
//
// What is in use is compared with the limit, instead of the limit being left to the collector
// alone, since near its limit that runs all the time and frees nothing: what is kept for good has
// to go before.
type Guard struct {
	// Static after construction.
	limit *Limit
	steps []Step
	read  func() Usage
	aside func() int64 // what others hold for us
	log   *zap.Logger

	mu struct {
		sync.Mutex
		taken int       // steps that are taken: the first so many
		times []uint64  // how often each has been
		cycle uint64    // of the collection after which the last step was taken
		above time.Time // when use was last too high to take the last step back
		usage Usage
	}
}

// NewGuard makes a guard of a limit. aside tells what is held for the process and is not Go's. The
// steps are in the order in which they are taken, each at no less than the one before.
func NewGuard(limit *Limit, aside func() int64, steps []Step, log *zap.Logger) *Guard {
	g := &Guard{limit: limit, steps: steps, read: Read, aside: aside, log: log}
	g.mu.times = make([]uint64, len(steps))
	return g
}

// Run looks until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
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

// wants reports that the next step, number n, is to be taken. Callers hold mu.
func (g *Guard) wants(n int, part float64, usage Usage) bool {
	over := part - g.steps[n].At
	return over >= hurry || over >= 0 && (n == 0 || usage.Cycles > g.mu.cycle)
}

// look takes a step, takes one back, or leaves things as they are.
func (g *Guard) look(now time.Time) {
	usage := g.read()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit.Leave(g.aside())
	g.mu.usage = usage
	part := float64(usage.InUse) / float64(g.limit.Bytes())
	for n := g.mu.taken; n < len(g.steps) && g.wants(n, part, usage); n = g.mu.taken {
		g.mu.taken, g.mu.cycle, g.mu.above = n+1, usage.Cycles, now
		g.mu.times[n]++
		g.steps[n].Take()
		g.say("memory is short: "+g.steps[n].Gone, n, usage)
	}
	n := g.mu.taken
	if n == 0 {
		return
	}
	for _, s := range g.steps[:n] {
		if s.Hold != nil {
			s.Hold()
		}
	}
	switch last := g.steps[n-1]; {
	case part > last.At-slack:
		g.mu.above = now
	case now.Sub(g.mu.above) >= restFor:
		g.mu.taken, g.mu.above = n-1, now
		last.Back()
		g.say("memory suffices again: taken back", n-1, usage)
	}
}

func (g *Guard) say(what string, step int, usage Usage) {
	g.log.Warn(what, zap.String("step", g.steps[step].Name), zap.Int64("inUse", usage.InUse),
		zap.Int64("limit", g.limit.Bytes()))
}

// State is how a guard stands.
type State struct {
	Limit, InUse int64
	Steps        []StepState
}

// StepState is how one step stands.
type StepState struct {
	Name  string
	Taken bool
	Times uint64 // that it was taken
}

// State tells how the guard stands.
func (g *Guard) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Limit: g.limit.Bytes(), InUse: g.mu.usage.InUse}
	for i, step := range g.steps {
		s.Steps = append(s.Steps, StepState{Name: step.Name, Taken: i < g.mu.taken, Times: g.mu.times[i]})
	}
	return s
}
