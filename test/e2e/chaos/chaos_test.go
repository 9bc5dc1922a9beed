package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"spillway/test/framework/process"
)

var (
	runs  = flag.Int("chaos.runs", 0, "how many runs, each with a seed of its own; 0: 5 with -short, 10 without")
	first = flag.Uint64("chaos.first", 1, "the seed of the first run")
	seed  = flag.Uint64("chaos.seed", 0, "the only seed to run: it repeats a run")

	parallel = flag.Int("chaos.parallel", 1, "how many runs there are at a time, each in a world of its own")
)

func TestMain(m *testing.M) {
	// Informers look after their connections as they always do, only sooner.
	_ = os.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	_ = os.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	klog.SetLogger(logr.Discard()) // of broken connections, informers have much to say
	runtime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// Whatever breaks, no client receives what is not true, and every client has the truth in the end.
func TestChaos(t *testing.T) {
	seeds := chosenSeeds()
	began, binary := time.Now(), process.BuildFaultyProxy(t, stage(t)...)
	s := &runResults{todo: make(chan uint64, len(seeds)), faults: map[string]*faultCounts{}}
	for _, seed := range seeds {
		s.todo <- seed
	}
	close(s.todo)
	var worlds sync.WaitGroup
	for i := range min(*parallel, len(seeds)) {
		worlds.Go(func() {
			t.Run(fmt.Sprintf("world %d", i+1), func(t *testing.T) { s.live(t, binary) })
		})
	}
	worlds.Wait()
	t.Logf("%d runs, from seed %d on, in %v: %+v", len(seeds), seeds[0], time.Since(began).Round(time.Second), s.total)
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		t.Logf("survived %3d times, %3d of them guarded: %s", s.faults[name].times, s.faults[name].guarded, name)
	}
}

// runResults is what several worlds, each with one run at a time, have got through.
type runResults struct {
	todo chan uint64 // closed

	// Guarded by mu.
	mu     sync.Mutex
	faults map[string]*faultCounts // by name
	total  tally
}

// faultCounts counts the runs that had a fault.
type faultCounts struct{ times, guarded int }

// live makes a world go through runs until there are none left.
func (s *runResults) live(t *testing.T, binary string) {
	w, whole := newWorld(t), true
	for seed := range s.todo {
		if !whole {
			w = newWorld(t) // whatever it is that is wrong, the next run shall not have it
		}
		whole = t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			counts, err := w.run(t, binary, seed)
			s.count(seed, counts, err == nil)
			if err != nil {
				t.Errorf("%v\nseed %d: %s", err, seed, newSchedule(seed))
			}
		})
	}
}

func (s *runResults) count(seed uint64, counts tally, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.add(counts)
	if !well {
		return
	}
	for _, step := range newSchedule(seed) {
		if s.faults[step.name] == nil {
			s.faults[step.name] = &faultCounts{}
		}
		s.faults[step.name].times++
		if guarded(seed) {
			s.faults[step.name].guarded++
		}
	}
}

func chosenSeeds() []uint64 {
	if *seed > 0 {
		return []uint64{*seed}
	}
	n := *runs
	switch {
	case n == 0 && testing.Short():
		n = 5
	case n == 0:
		n = 10
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = *first + uint64(i)
	}
	return seeds
}

// run is one run: clients begin, things break and are mended, writers stop, all clients are waited
// for, and then judged.
func (w *world) run(t *testing.T, binary string, seed uint64) (tally, error) {
	began := time.Now()
	plan := newSchedule(seed)
	t.Logf("seed %d, guarded: %t: %s", seed, guarded(seed), plan)
	w.excuses = &allowances{}
	w.newProxy(t, binary, guarded(seed))
	c, err := w.newCast(seed)
	if err != nil {
		return tally{}, err
	}
	w.cast = c
	ctx, leave := context.WithCancel(t.Context())
	defer func() {
		leave()
		c.playing.Wait()
		w.clients.Reset()
	}()
	c.start(ctx)
	stop := c.write(ctx)
	defer func() { stop() }()
	err = eventually(ctx, c.begun)
	if err == nil {
		err = w.play(ctx, plan)
	}
	mended := time.Now()
	if err == nil {
		err = c.settles(ctx, w, stop)
	}
	settled := time.Now()
	if err == nil {
		err = w.calm(ctx, t, c)
	}
	calmed := time.Now()
	leave()
	c.playing.Wait()
	err = errors.Join(err, w.proxy.well(), w.proxy.started(w.excuses))
	truth, unknown := w.recorder.caughtUp(t.Context())
	if unknown != nil {
		return tally{}, errors.Join(err, unknown)
	}
	counts, wrong := c.judge(truth, w.excuses)
	t.Logf("seed %d: mended after %.1f s, all settled %.1f s and calm %.1f s later; %d writes; %+v", seed,
		mended.Sub(began).Seconds(),
		settled.Sub(mended).Seconds(), calmed.Sub(settled).Seconds(), c.writes(), counts)
	for _, step := range plan {
		if step.name == vanishes {
			t.Logf("seed %d: the proxy gone without a word was noticed by %s; %s", seed, c.noticed(step.began, "HTTP/1.1"),
				c.noticed(step.began, "HTTP/2"))
		}
	}
	return counts, errors.Join(wrong, err)
}

// calm lets the clients go on until it has seen the mirrors at rest: while all that was written
// arrived, none of them had to list again, as one that has lost its watch does after its backoff.
// Then nothing may have been missing or taken back, from the beginning of that on; and a client
// that has a state need not list again, unless a restored etcd gives resourceVersions a second
// time.
func (w *world) calm(ctx context.Context, t *testing.T, c *runClients) error {
	const lists = "spillway_upstream_lists_total"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before, since := process.Metric(t, w.proxy.metrics, lists), time.Now()
		if err := c.settles(ctx, w, c.write(ctx)); err != nil {
			return err
		}
		if process.Metric(t, w.proxy.metrics, lists) > before {
			continue
		}
		if !w.excuses.allow(rewrite, since) {
			w.excuses.until(since, expire)
		}
		w.excuses.until(since, seam, remove, rewrite, deny)
		return nil
	}
	return fmt.Errorf("for %v there was always a mirror that asked for a complete state again", patience)
}

// writesAfter is how much each writer writes after all is mended, and again when that has arrived.
const writesAfter = 8

// play makes what is in the plan happen.
func (w *world) play(ctx context.Context, plan schedule) error {
	var all sync.WaitGroup
	errs := make([]error, 2*len(plan))
	for i := range plan {
		all.Go(func() {
			s := &plan[i]
			pause(ctx, s.at)
			s.began = time.Now()
			w.excuses.from(s.began, s.effects...)
			if err := s.inject(ctx, w); err != nil {
				errs[2*i] = fmt.Errorf("%s: %w", s.name, err)
			}
			pause(ctx, s.lasts)
			if err := s.heal(ctx, w); err != nil {
				errs[2*i+1] = fmt.Errorf("%s, to be mended: %w", s.name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
