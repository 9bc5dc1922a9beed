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
	// Begin learns R, the resourceVersion of a LIST that starts now, and returns the connection that it came on.
	Begin(ctx context.Context) (rv uint64, proof Proof, err error)
}

// Proof is one upstream connection. Whatever it says comes from the apiserver that answered its Begin: behind a load
// balancer another one may be behind for long (design D7).
type Proof interface {
	// Prove watches from a resourceVersion until upstream's first bookmark, and returns it with the resourceVersion of
	// the last event before it, 0 if there was none.
	Prove(ctx context.Context, from uint64) (bookmark, lastEvent uint64, err error)
	Close()
}

// ErrNotProven says that upstream did not confirm in time how far it is. Nothing may be claimed then.
var ErrNotProven = errors.New("the cache could not be proven fresh in time")

// proofTimeout bounds one proof, as upstream bounds its own wait (W-210).
const proofTimeout = 3 * time.Second

// arrival is how long a flight waits for the mirror's own stream before it asks upstream for a bookmark: on a busy
// resource the next event is the proof (W-211 l).
const arrival = 25 * time.Millisecond

// Freshness proves that a resource's cache is not older than the moment of the question (design D7).
//
// Knowing R, the newest resourceVersion upstream, proves nothing about what the open watch has delivered (W-212): the cache
// is proven when it is complete through R. Everybody who asks while a flight is under way shares the next one, so that
// there is one flight in the air and at most one waiting, however many ask.
type Freshness struct {
	resource *Resource
	prober   Prober

	failures atomic.Int32 // flights in a row that proved nothing

	mu struct {
		sync.Mutex
		running, waiting *flight
	}
}

// doubt is how many flights in a row may fail before requests that need a proof had better go upstream.
const doubt = 2

// Doubtful reports that proofs have failed lately. Asking starts another one, so that the answer can change.
func (f *Freshness) Doubtful() bool {
	if f.failures.Load() < doubt {
		return false
	}
	f.join()
	return true
}

// flight is one proof and those who wait for it.
type flight struct {
	done chan struct{}
	err  error
}

// NewFreshness makes the prover of one resource.
func NewFreshness(r *Resource, p Prober) *Freshness {
	return &Freshness{resource: r, prober: p}
}

// Prove returns nil once the cache holds everything that was acknowledged before the call; ErrNotProven or upstream's
// error if it cannot be known; ctx's error if that comes first. The flight goes on without the caller.
func (f *Freshness) Prove(ctx context.Context) error {
	fl := f.join()
	select {
	case <-fl.done:
		return fl.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join returns a flight that has not started yet: one that has may have asked upstream too early.
func (f *Freshness) join() *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.waiting == nil {
		f.mu.waiting = &flight{done: make(chan struct{})}
	}
	fl := f.mu.waiting
	if f.mu.running == nil {
		f.start()
	}
	return fl
}

// start lets the waiting flight go. Callers hold mu.
func (f *Freshness) start() {
	fl := f.mu.waiting
	f.mu.running, f.mu.waiting = fl, nil
	go func() {
		if fl.err = f.fly(); fl.err != nil {
			f.failures.Add(1)
		} else {
			f.failures.Store(0)
		}
		close(fl.done)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.running = nil
		if f.mu.waiting != nil {
			f.start()
		}
	}()
}

func (f *Freshness) fly() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	generation, through := f.resource.Generation(), f.resource.Through()
	rv, proof, err := f.prober.Begin(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(ErrNotProven, err)
		}
		return err
	}
	defer proof.Close()
	if rv < through {
		return fmt.Errorf("%w: upstream is at %d, below %d which it has promised", ErrNotProven, rv, through)
	}
	soon, cancelSoon := context.WithTimeout(ctx, arrival)
	err = f.resource.WaitThrough(soon, rv)
	cancelSoon()
	if err == nil {
		return nil
	}
	// The mirror's own stream may still get there first; whichever does ends the flight.
	watching, stop := context.WithCancel(ctx)
	proved := make(chan error, 1)
	go func() { proved <- f.prove(watching, proof, generation) }()
	defer func() { stop(); <-proved }()
	return f.waitEither(ctx, rv, proved)
}

// prove moves progress to upstream's bookmark, once the mirror has delivered whatever happened before it.
func (f *Freshness) prove(ctx context.Context, proof Proof, generation uint64) error {
	bookmark, last, err := proof.Prove(ctx, f.resource.Through())
	if err != nil {
		return err
	}
	if err := f.resource.WaitThrough(ctx, last); err != nil {
		return err
	}
	f.resource.Progress(bookmark, generation)
	return nil
}

// waitEither waits until the cache is complete through rv. A failed proof does not end the wait: the mirror may succeed.
func (f *Freshness) waitEither(ctx context.Context, rv uint64, proved chan error) error {
	err := f.resource.WaitThrough(ctx, rv)
	if err == nil {
		return nil
	}
	select {
	case failed := <-proved:
		proved <- failed
		if failed != nil {
			return errors.Join(ErrNotProven, failed)
		}
	default:
	}
	return err
}
