package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Prober asks upstream how far it is.
type Prober interface {
	// Begin learns R, the resourceVersion of a LIST that starts now, and returns the connection that
	// it came on.
	Begin(ctx context.Context) (rv uint64, proof Proof, err error)
	// State learns the resourceVersion of every object, by key, in a state that is not older than the
	// call, and the resourceVersion of that state. It is one request, which no balancer can split.
	State(ctx context.Context) (rv uint64, versions map[string]uint64, err error)
	// Bookmarks reports whether Prove may be expected to bring a bookmark for a resource that had no
	// event lately: Kubernetes 1.30 and older send none.
	Bookmarks() bool
}

// Proof is one upstream connection. Whatever it says comes from the apiserver that answered its
// Begin: behind a load balancer another one may be behind for long (design D7).
type Proof interface {
	// Prove watches from a resourceVersion until upstream's first bookmark, and returns it with the
	// resourceVersion of the last event before it, 0 if there was none.
	Prove(ctx context.Context, from uint64) (bookmark, lastEvent uint64, err error)
	Close()
}

// ErrNotProven says that upstream did not confirm in time how far it is. Nothing may be claimed
// then.
var ErrNotProven = errors.New("the cache could not be proven fresh in time")

const (
	// proofTimeout bounds one flight, as upstream bounds its own wait (W-210).
	proofTimeout = 3 * time.Second
	// arrival is how long a flight waits for the mirror's own stream before it has upstream checked:
	// on a busy resource the next event is the proof (W-211 l).
	arrival = 25 * time.Millisecond
	// stateReadInterval is the time between two flights that read upstream's state, which may cost it
	// a read of etcd: requests that arrive meanwhile share the next one.
	stateReadInterval = time.Second
	// doubt is how many flights in a row may fail before requests that need a proof had better go
	// upstream.
	doubt = 2
)

// Freshness proves that a resource's cache is not older than the moment of the request (design D7).
//
// Knowing R, the newest resourceVersion upstream, proves nothing about what the open watch has
// delivered (W-212): the cache is proven when it is complete through R. A flight is one query of R
// and the requests that wait for what follows from it. A request that arrives after the query was
// sent shares the next flight, so one query is under way and at most one flight waits to send its
// own, however many requests arrive. Flights that know their R wait side by side: the next one need
// not wait for the bookmark that this one needs.
type Freshness struct {
	resource *Resource
	prober   Prober
	cost     listCostModel

	failures atomic.Int32 // flights in a row that failed a request that insisted

	mu struct {
		sync.Mutex
		asking  bool    // a flight is asking for R, or pauses before it does
		waiting *flight // the one that asks next
		begun   time.Time
		late    uint64 // what history was complete through when R had to be checked last

		checks      checks
		comparisons comparisons
	}
}

// flight is one query of R and the requests that wait for the proof.
type flight struct {
	begun   time.Time     // static once R is queried
	insists bool          // a request cannot be answered without the proof; fixed once R is queried
	known   chan struct{} // closed when rv is known, or never will be
	rv      uint64        // R, 0 if upstream did not say
	waited  time.Duration // from R until the mirror's own stream had got there

	done  chan struct{}
	state *Snapshot
	err   error
}

// NewFreshness makes the prover of one resource.
func NewFreshness(r *Resource, p Prober) *Freshness {
	f := &Freshness{resource: r, prober: p}
	f.mu.checks.waiters = map[*proofWaiter]struct{}{}
	return f
}

// Prove returns a state that holds everything that was acknowledged before the call; ErrNotProven
// or upstream's error if there is none in time; ctx's error if that comes first. The flight goes on
// without the caller.
func (f *Freshness) Prove(ctx context.Context) (*Snapshot, error) {
	return f.await(ctx, f.join(true))
}

// Newest returns R: a resourceVersion that everything acknowledged before the call is at or below.
// That says nothing about the cache, which may not have heard of it yet (W-212).
func (f *Freshness) Newest(ctx context.Context) (uint64, error) {
	fl := f.join(false)
	select {
	case <-fl.known:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if fl.rv == 0 {
		_, err := f.await(ctx, fl)
		return 0, err
	}
	return fl.rv, nil
}

// Doubtful reports that proofs have failed lately. Asking starts another one, so that the answer
// can change.
func (f *Freshness) Doubtful() bool {
	if f.failures.Load() < doubt {
		return false
	}
	f.join(true)
	return true
}

// await waits for a flight. The newest state is as good as the one that was proven, and spares the
// log behind it.
func (f *Freshness) await(ctx context.Context, fl *flight) (*Snapshot, error) {
	select {
	case <-fl.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fl.err != nil {
		return nil, fl.err
	}
	now := f.resource.Snapshot()
	switch {
	case now.generation != fl.state.generation || f.resource.Disowned():
		return nil, fmt.Errorf("%w: history has become void since", ErrNotProven)
	case now.RV >= fl.state.RV:
		return now, nil
	}
	return fl.state, nil
}

// join returns a flight that has not asked yet: one that has may have asked too early.
func (f *Freshness) join(insists bool) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.waiting == nil {
		f.mu.waiting = &flight{known: make(chan struct{}), done: make(chan struct{})}
	}
	fl := f.mu.waiting
	fl.insists = fl.insists || insists
	if !f.mu.asking {
		f.startLocked()
	}
	return fl
}

// startLocked starts the waiting flight, at once or after its pause. Requests join it meanwhile.
func (f *Freshness) startLocked() {
	f.mu.asking = true
	if pause := f.pauseLocked(); pause > 0 {
		time.AfterFunc(pause, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.startLocked()
		})
		return
	}
	fl := f.mu.waiting
	f.mu.waiting, f.mu.begun = nil, time.Now()
	fl.begun = f.mu.begun
	go f.run(fl, fl.insists && f.quietLocked())
}

// quietLocked reports that neither an event nor a bookmark is to be expected: upstream sends no
// bookmark, and the last proof found no event either.
func (f *Freshness) quietLocked() bool {
	return !f.prober.Bookmarks() && f.mu.late == f.resource.Through() && f.mu.late > 0
}

// pauseLocked is how long the waiting flight is held, so that requests which arrive one after
// another do not cost upstream a LIST each where only LISTs prove anything.
func (f *Freshness) pauseLocked() time.Duration {
	switch {
	case !f.mu.waiting.insists || f.prober.Bookmarks():
		return 0
	case f.quietLocked():
		return stateReadInterval - time.Since(f.mu.begun)
	}
	return 2*arrival - time.Since(f.mu.begun)
}

// run runs one flight, from the query of R to the proof. If the resource is quiet, upstream's state
// is both.
func (f *Freshness) run(fl *flight, quiet bool) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	if quiet {
		f.runByState(ctx, fl)
	} else {
		fl.rv, fl.err = f.ask(ctx)
		f.asked(fl)
		if fl.err == nil {
			fl.state, fl.err = f.prove(ctx, fl)
		}
	}
	switch {
	case fl.err == nil:
		f.failures.Store(0)
	case fl.insists:
		f.failures.Add(1)
	}
	close(fl.done)
}

// ask learns R.
func (f *Freshness) ask(ctx context.Context) (uint64, error) {
	generation, promised, began := f.resource.Generation(), f.resource.Promised(), time.Now()
	rv, proof, err := f.prober.Begin(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(ErrNotProven, err)
		}
		return 0, err
	}
	proof.Close()
	if err := f.learn(rv, promised, generation); err != nil {
		return 0, err
	}
	f.cost.asked(time.Since(began))
	return rv, nil
}

// learn notes R, the answer to a question that was sent after promised.
func (f *Freshness) learn(rv, promised, generation uint64) error {
	if rv < promised {
		f.resource.Disown(generation)
		return fmt.Errorf("%w: upstream is at %d, below %d which it has promised", ErrNotProven, rv, promised)
	}
	f.resource.Seen(rv, generation)
	return nil
}

// runByState learns R and proves the cache by one read of upstream's state. If the cache differs,
// the flight waits as any other does.
func (f *Freshness) runByState(ctx context.Context, fl *flight) {
	generation, promised := f.resource.Generation(), f.resource.Promised()
	rv, versions, err := f.prober.State(ctx)
	if err == nil {
		err = f.learn(rv, promised, generation)
	}
	if err == nil {
		fl.rv = rv
	}
	f.asked(fl)
	if fl.err = err; err != nil {
		return
	}
	switch fl.state, fl.err = f.match(ctx, generation, rv, versions); {
	case fl.err == nil:
		f.satisfy(fl.state)
	case ctx.Err() == nil: // the mirror's own stream may be late
		fl.state, fl.err = f.checked(ctx, rv, fl.begun)
	}
}

// asked starts the next flight.
func (f *Freshness) asked(fl *flight) {
	close(fl.known)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asking = false
	if f.mu.waiting != nil {
		f.startLocked()
	}
}

// prove waits until the cache is complete through R: by the mirror's own stream, or, if a request
// insists, by a check of upstream.
func (f *Freshness) prove(ctx context.Context, fl *flight) (*Snapshot, error) {
	least := proofWaitLimit
	if fl.insists {
		least = arrival
	}
	soon, cancel := context.WithTimeoutCause(ctx, least, ErrNotProven)
	defer cancel()
	began := time.Now()
	state, err := f.resource.StateThrough(soon, fl.rv)
	fl.waited = time.Since(began)
	f.cost.arrived(fl.waited, err == nil)
	if err == nil || !fl.insists {
		return state, err
	}
	f.mu.Lock()
	f.mu.late = f.resource.Through()
	f.mu.Unlock()
	return f.checked(ctx, fl.rv, fl.begun)
}
