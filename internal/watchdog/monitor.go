// Package watchdog watches the loops of the process by a clock that none of them owns: a loop that
// has work and does not move is logged, counted, and known to what it serves.
//
// Invariant: the clock waits for no loop, no file and no lock that a loop holds while it works. It
// counts its own ticks and not the time of day, so that a process that was stopped (SIGSTOP, a
// machine that slept) does not take its loops for stalled ones.
package watchdog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// tick is how often the clock looks at loops.
const tick = 250 * time.Millisecond

// LoopKind is what a loop is: a value of the label "loop" of metrics.
type LoopKind string

// All kinds of loops.
const (
	Mirror       LoopKind = "mirror"       // applies a resource's events to its cache
	Dispatcher   LoopKind = "dispatcher"   // gives them to the feeds of watches
	Writer       LoopKind = "writer"       // sends to watches
	Reauthorizer LoopKind = "reauthorizer" // reviews watches again
	Log          LoopKind = "log"          // writes the log
	Audit        LoopKind = "audit"        // writes the audit log
)

// Kinds returns all kinds of loops.
func Kinds() []LoopKind { return []LoopKind{Mirror, Dispatcher, Writer, Reauthorizer, Log, Audit} }

// Monitor is the clock: it watches loops while Run runs.
type Monitor struct {
	log *zap.Logger // static

	mu      sync.Mutex
	watches map[*LoopWatch]struct{}
	stalls  map[LoopKind]uint64 // since the start
}

// LoopWatch is one loop as the clock sees it.
type LoopWatch struct {
	// Static after construction.
	clock    *Monitor
	kind     LoopKind
	name     string // of the loop among those of its kind; "": it is the only one
	limit    time.Duration
	progress ProgressFunc

	// The clock's goroutine's.
	turns      uint64
	motionless time.Duration // for how long the loop has worked without moving

	stalled atomic.Pointer[time.Time] // since when; nil: the loop moves
}

// New makes a Monitor that Run starts.
func New(log *zap.Logger) *Monitor {
	return &Monitor{log: log, watches: map[*LoopWatch]struct{}{}, stalls: map[LoopKind]uint64{}}
}

// Watch begins to watch a loop: it is stalled once it has worked without moving for limit. A nil
// Monitor watches nothing.
func (c *Monitor) Watch(kind LoopKind, name string, limit time.Duration, progress ProgressFunc) *LoopWatch {
	w := &LoopWatch{clock: c, kind: kind, name: name, limit: limit, progress: progress}
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watches[w] = struct{}{}
	}
	return w
}

// End ends the watch of a loop that has ended. Idempotent.
func (w *LoopWatch) End() {
	if w.clock != nil {
		w.clock.mu.Lock()
		defer w.clock.mu.Unlock()
		delete(w.clock.watches, w)
	}
	w.stalled.Store(nil)
}

// StalledSince is since when the loop has not moved, once that is longer than its limit; zero: it
// moves, or has nothing to do.
func (w *LoopWatch) StalledSince() time.Time {
	if since := w.stalled.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// String names the loop.
func (w *LoopWatch) String() string { return strings.TrimSpace(string(w.kind) + " " + w.name) }

// Run watches until ctx ends.
func (c *Monitor) Run(ctx context.Context) error {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			for _, w := range c.all() {
				w.look()
			}
		}
	}
}

// all are the loops that are watched, by their names.
func (c *Monitor) all() []*LoopWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Keys(c.watches), func(a, b *LoopWatch) int {
		return strings.Compare(a.String(), b.String())
	})
}

// look notices at a tick whether the loop has moved since the last one.
func (w *LoopWatch) look() {
	turns, working := w.progress()
	if !working || turns != w.turns {
		w.turns, w.motionless = turns, 0
		if since := w.stalled.Swap(nil); since != nil {
			w.clock.log.Info("a loop moves again", zap.Stringer("loop", w),
				zap.Duration("after", time.Since(*since).Round(time.Millisecond)))
		}
		return
	}
	if w.motionless += tick; w.motionless < w.limit || w.stalled.Load() != nil {
		return
	}
	since := time.Now().Add(-w.motionless)
	w.stalled.Store(&since)
	w.clock.countStall(w.kind)
	w.clock.log.Error("a loop does not move", zap.Stringer("loop", w), zap.Duration("for", w.motionless))
}

func (c *Monitor) countStall(kind LoopKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls[kind]++
}

// Stall is a loop that does not move.
type Stall struct {
	Loop     string
	LoopKind LoopKind
	Since    time.Time
}

// Stalled are the loops that do not move, ordered by name.
func (c *Monitor) Stalled() []Stall {
	var all []Stall
	for _, w := range c.all() {
		if since := w.StalledSince(); !since.IsZero() {
			all = append(all, Stall{Loop: w.String(), LoopKind: w.kind, Since: since})
		}
	}
	return all
}

// Describe is the part of /readyz?verbose about loops: a line for each that does not move.
func (c *Monitor) Describe() []string {
	var lines []string
	for _, s := range c.Stalled() {
		lines = append(lines, fmt.Sprintf("[!]loop %s has not moved for %s", s.Loop,
			time.Since(s.Since).Round(time.Second)))
	}
	return lines
}
