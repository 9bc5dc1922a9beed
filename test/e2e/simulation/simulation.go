// Package simulation runs the watch cache, the hub and many clients against a model of upstream,
// step by step, from a seed.
//
// Invariant: a run is a function of its seed. Every client is judged by an oracle that knows what
// upstream did and reads nothing but the bytes that the client received.
package simulation

import (
	"fmt"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"spillway/internal/cache"
	"spillway/internal/fanout"
)

// Simulation is one upstream, one mirrored resource, its hub, and their clients.
//
// Everything happens in steps of one goroutine, because what is tested is what may happen between
// any two of them: locks and atomics are the business of the packages' own tests. Only Dispatch has
// a goroutine, to see that it never waits. Run it inside a synctest bubble, where that is decided
// without a clock.
type Simulation struct {
	rand     *rand.Rand
	clock    time.Time
	up       *upstream
	resource *cache.Resource
	hub      *fanout.Hub
	mirror   *mirror
	history  *history
	clients  []*client
	faults   faults

	dispatched int // entries of the history that the hub has had
	generation *generation
	frames     uint64        // that the hub had made before the last dispatch
	waits      chan struct{} // a dispatch that does not return

	violation *Violation
	counts    counts
}

// Violation is a check that failed.
type Violation struct {
	Check Check
	Text  string
}

// Check names one invariant (ARCHITECTURE.md, Invariants), or one of the seam's (design D5).
type Check string

// The checks. What each means is said where it is made.
const (
	Order    Check = "order"    // 1
	Complete Check = "complete" // 2
	Once     Check = "once"     // 3
	Bookmark Check = "bookmark" // 4
	Memory   Check = "memory"   // 5
	Dispatch Check = "dispatch" // 6
	Encoded  Check = "encoded"  // 7
	End      Check = "end"      // 8
	Seam     Check = "seam"     // D5
)

// counts say what a run has tried, so that an empty one cannot pass for a green one.
type counts struct {
	Writes, Relists, Seams, Voids, Events, Bookmarks, Starts, Resumes, Expired, Unproven, Deadlines, Cuts, Exact int
}

func (c *counts) add(o counts) {
	c.Writes += o.Writes
	c.Relists += o.Relists
	c.Seams += o.Seams
	c.Voids += o.Voids
	c.Events += o.Events
	c.Bookmarks += o.Bookmarks
	c.Starts += o.Starts
	c.Resumes += o.Resumes
	c.Expired += o.Expired
	c.Unproven += o.Unproven
	c.Deadlines += o.Deadlines
	c.Cuts += o.Cuts
	c.Exact += o.Exact
}

// config is what a run is made of.
type config struct {
	limits  cache.HistoryLimits
	clients int
	padding int // most bytes that an object is padded by
	faults  faults
}

// randomConfig draws the size of history: from so short that every client expires to so long that
// none does.
func randomConfig(r *rand.Rand) config {
	bytes := []int64{8 << 10, 40 << 10, 200 << 10, 10 << 20}[r.IntN(4)]
	age := []time.Duration{0, 20 * time.Second}[r.IntN(2)]
	return config{limits: cache.HistoryLimits{HistoryBytes: bytes, HistoryMinAge: age}, clients: 16, padding: 600}
}

func newSimulation(r *rand.Rand, c config) *Simulation {
	s := &Simulation{rand: r, clock: time.Unix(1_000_000_000, 0), faults: c.faults}
	s.up = newUpstream(r, c.padding)
	s.resource = cache.New(pods, c.limits, func() time.Time { return s.clock })
	s.hub = fanout.NewHub(s.resource)
	s.history = &history{}
	s.mirror = &mirror{sim: s}
	for range 10 {
		s.up.write()
	}
	s.mirror.relist()
	for i := range c.clients {
		s.clients = append(s.clients, newClient(s, i))
	}
	return s
}

// Run makes steps, lets everything come to rest, and returns the first violation, if any.
func (s *Simulation) Run(steps int) *Violation {
	for range steps {
		if s.violation == nil {
			s.step()
		}
	}
	if s.violation == nil {
		s.rest()
	}
	s.faults.release()
	if s.waits != nil {
		<-s.waits
	}
	return s.violation
}

func (s *Simulation) step() {
	s.clock = s.clock.Add(time.Duration(s.rand.IntN(300)) * time.Millisecond)
	s.up.step()
	s.mirror.step()
	if s.rand.IntN(3) > 0 {
		s.dispatch()
	}
	for range 4 {
		s.clients[s.rand.IntN(len(s.clients))].step()
	}
	if s.rand.IntN(40) == 0 {
		s.exact()
	}
	s.checkMemory()
}

// rest lets upstream's last word arrive everywhere, and checks that every client ends up with the
// truth.
func (s *Simulation) rest() {
	s.mirror.rest()
	for _, c := range s.clients {
		c.rest()
	}
	for _, c := range s.clients {
		c.close()
	}
	if n := s.hub.Feeds(); n != 0 && s.violation == nil {
		s.report(Memory, "%d feeds are left when all clients have gone", n)
	}
}

// report notes the first violation; what follows it may be its consequence.
func (s *Simulation) report(check Check, format string, args ...any) {
	if s.violation == nil {
		s.violation = &Violation{Check: check, Text: fmt.Sprintf(format, args...)}
	}
}

// dispatch lets the hub go to the head of the log. It must return, whatever the clients do (6), and
// make no frame twice (7).
func (s *Simulation) dispatch() {
	most := s.mostFrames()
	back := make(chan struct{})
	go func() {
		s.faults.dispatch(s)
		close(back)
	}()
	synctest.Wait()
	select {
	case <-back:
	default:
		s.report(Dispatch, "the hub waits, with %d entries to dispatch", s.hub.Lag())
		s.waits = back
		return
	}
	if lag, stalls := s.hub.Lag(), s.hub.Stats().DispatchStalls.Load(); lag > 0 || stalls > 0 {
		s.report(Dispatch, "after a dispatch the hub is %d entries behind; it stalled %d times", lag, stalls)
	}
	frames := s.hub.Stats().Frames.Load()
	if made := frames - s.frames; made > uint64(most) {
		s.report(Encoded, "%d frames were made for events that all feeds together see %d times", made, most)
	}
	s.frames = frames
}

// mostFrames is how many frames the next dispatch needs: one per event and distinct feed that sees
// it.
func (s *Simulation) mostFrames() int {
	type key struct {
		filter filter
		format format
	}
	feeds := map[key]bool{}
	for _, c := range s.clients {
		if c.stream != nil {
			feeds[key{c.filter, c.format}] = true
		}
	}
	g := s.history.now()
	if s.generation != g {
		s.generation, s.dispatched = g, 0
	}
	n := 0
	for _, e := range g.entries[s.dispatched:] {
		for k := range feeds {
			if _, _, seen := k.filter.seen(&e); seen || e.part == seamEnd && k.format.bookmarks {
				n++
			}
		}
	}
	s.dispatched = len(g.entries)
	return n
}

// heldBound is what a stream may keep to itself however far it lags: one run of frames.
const heldBound = 80 << 10

// checkMemory is invariant 5: past its initial events a stream's memory does not depend on its lag.
func (s *Simulation) checkMemory() {
	for _, c := range s.clients {
		if c.stream == nil || c.stream.phase != phaseLive {
			continue
		}
		if held := c.stream.source.BufferedBytes(); held > heldBound {
			s.report(Memory, "%v holds %d bytes for itself, %d entries behind", c, held, c.stream.source.Lag())
		}
	}
}

// exact reads the state at some resourceVersion, and compares it with what upstream's was.
func (s *Simulation) exact() {
	s.counts.Exact++
	g := s.history.now()
	rv := g.through + 3 - min(uint64(s.rand.IntN(100)), g.through)
	snapshot, err := s.resource.SnapshotAt(rv)
	i, inside := g.index(rv)
	happened := rv >= g.floor && rv <= g.through && !inside // it may be remembered longer than the log reaches back
	switch {
	case happened && err != nil && rv >= s.resource.Log().Floor():
		s.report(Complete, "the state at %d is not known: %v", rv, err)
	case !happened && err == nil:
		s.report(Complete, "a state at %d is claimed to be known", rv)
	case err == nil:
		want := g.stateAt(i)
		if snapshot.Len() != len(want) {
			s.report(Complete, "the state at %d has %d objects, not %d", rv, snapshot.Len(), len(want))
		}
		for key, v := range want {
			if o, ok := snapshot.Get(key); !ok || o.RV != v.rv {
				s.report(Complete, "the state at %d lacks %v", rv, v)
			}
		}
	}
}
