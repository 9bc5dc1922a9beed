package freshness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
)

// Upstream answers how far upstream is.
type Upstream interface {
	// Begin learns R, the resourceVersion of a LIST that starts now, and returns the connection that
	// it came on.
	Begin(ctx context.Context) (rv uint64, proof Proof, err error)
	// State learns the resourceVersion of every object, by key, in a state that is not older than the
	// call, and the resourceVersion of that state. It is one request, which no balancer can split.
	State(ctx context.Context) (rv uint64, versions map[string]uint64, err error)
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

// errSilent is an ErrNotProven because upstream did not even say R.
var errSilent = fmt.Errorf("%w: upstream does not say how far it is", ErrNotProven)

const (
	// proofTimeout bounds the query of R, and then the wait for the proof, as upstream bounds its own
	// wait (W-210). The wait lasts longer only while upstream owes a bookmark.
	proofTimeout = 3 * time.Second
	// streamWaitTimeout is how long a flight waits for the mirror's own stream before it has upstream
	// checked: on a busy resource the next event is the proof (W-211 l).
	streamWaitTimeout = 25 * time.Millisecond
	// refusedInterval is how long a refused question is not sent again, from its beginning on.
	// maxRefusedInterval is how long at most if the refusal has a Retry-After: a front of upstream's
	// may ask for an hour, and mend in a minute.
	refusedInterval    = 100 * time.Millisecond
	maxRefusedInterval = 8 * time.Second
	// failedProofsLimit is how many flights in a row may fail before requests that need a proof had
	// better go upstream.
	failedProofsLimit = 2
	// unprovableTimeout is how long proofs must have failed until requests need not be sent again to
	// wait for one.
	unprovableTimeout = 30 * time.Second
)

// Prover proves that a resource's cache is not older than the moment of the request (design D7).
//
// Knowing R, the newest resourceVersion upstream, proves nothing about what the open watch has
// delivered (W-212): the cache is proven when it is complete through R. A flight is one query of R
// and the requests that wait for what follows from it. A request that arrives after the query was
// sent shares the next flight, so one query is under way and at most one flight waits to send its
// own, however many requests arrive. Flights that know their R wait side by side: the next one need
// not wait for the bookmark that this one needs.
type Prover struct {
	resource *cache.Resource
	upstream Upstream
	cost     listCostModel

	failures     atomic.Int32              // proofs in a row that failed a request that insisted
	failingSince atomic.Pointer[time.Time] // when the first of them did; nil: the last one succeeded

	mu struct {
		sync.Mutex
		querying   bool         // a flight is asking for R
		nextFlight *proofFlight // the one that asks next
		refusal    refusal      // of the last question

		waiters     map[*proofWaiter]struct{}
		newest      revision // whose connection the next watch for a bookmark takes
		bookmarks   rounds
		comparisons rounds
	}
}

// refusal is an error in answer to R, which requests get until the question may be sent again.
type refusal struct {
	err   error
	until time.Time
}

func (r refusal) isInForce() bool { return time.Now().Before(r.until) }

// proofFlight is one query of R and the requests that wait for the proof.
type proofFlight struct {
	mustProve  bool          // a request cannot be answered without the proof; fixed once R is queried
	rvReady    chan struct{} // closed when rv is known, or never will be
	rv         uint64        // R, 0 if upstream did not say
	streamWait time.Duration // from R until the mirror's own stream had got there

	done  chan struct{}
	state *cache.Snapshot
	err   error
}

// New makes the prover of one resource.
func New(r *cache.Resource, u Upstream) *Prover {
	f := &Prover{resource: r, upstream: u}
	f.mu.waiters = map[*proofWaiter]struct{}{}
	f.mu.bookmarks.interval, f.mu.comparisons.interval = bookmarkInterval, comparisonInterval
	return f
}

// Prove returns a state that holds everything that was acknowledged before the call; ErrNotProven
// or upstream's error if there is none in time; ctx's error if that comes first. The flight goes on
// without the caller.
//
// A question without an answer is repeated once: the request would otherwise pass through to an
// upstream that is too slow for a LIST of one item, and ask it for the whole state.
func (f *Prover) Prove(ctx context.Context) (*cache.Snapshot, error) {
	state, err := f.proveOnce(ctx)
	if errors.Is(err, errSilent) {
		return f.proveOnce(ctx)
	}
	return state, err
}

func (f *Prover) proveOnce(ctx context.Context) (*cache.Snapshot, error) {
	fl, err := f.joinFlight(true)
	if err != nil {
		f.countFailure()
		return nil, err
	}
	return f.awaitFlight(ctx, fl)
}

// UpstreamRV returns R: a resourceVersion that everything acknowledged before the call is at or
// below. That says nothing about the cache, which may not have heard of it yet (W-212).
func (f *Prover) UpstreamRV(ctx context.Context) (uint64, error) {
	fl, err := f.joinFlight(false)
	if err != nil {
		return 0, err
	}
	select {
	case <-fl.rvReady:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if fl.rv == 0 {
		_, err := f.awaitFlight(ctx, fl)
		return 0, err
	}
	return fl.rv, nil
}

// IsFailing reports that proofs have failed lately. Asking starts another one, so that the answer
// can change.
func (f *Prover) IsFailing() bool {
	if f.failures.Load() < failedProofsLimit {
		return false
	}
	_, _ = f.joinFlight(true) // an error says that it is too early
	return true
}

// IsUnprovable reports that no proof has succeeded for so long that another one is not to be waited
// for.
func (f *Prover) IsUnprovable() bool {
	since := f.failingSince.Load()
	return since != nil && time.Since(*since) >= unprovableTimeout
}

// countFailure counts a proof that failed a request which insisted.
func (f *Prover) countFailure() {
	f.failures.Add(1)
	f.failingSince.CompareAndSwap(nil, new(time.Now()))
}

// awaitFlight waits for a flight. The newest state is as good as the one that was proven, and
// spares the log behind it.
func (f *Prover) awaitFlight(ctx context.Context, fl *proofFlight) (*cache.Snapshot, error) {
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
	case now.Generation() != fl.state.Generation() || f.resource.IsHistoryReset():
		return nil, fmt.Errorf("%w: history has become void since", ErrNotProven)
	case now.RV >= fl.state.RV:
		return now, nil
	}
	return fl.state, nil
}

// joinFlight returns a flight that has not asked yet: one that has may have asked too early. An
// error is upstream's refusal of the last question, which is not to be repeated yet.
func (f *Prover) joinFlight(mustProve bool) (*proofFlight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.refusal.isInForce() {
		return nil, f.mu.refusal.err
	}
	if f.mu.nextFlight == nil {
		f.mu.nextFlight = &proofFlight{rvReady: make(chan struct{}), done: make(chan struct{})}
	}
	fl := f.mu.nextFlight
	fl.mustProve = fl.mustProve || mustProve
	if !f.mu.querying {
		f.startLocked()
	}
	return fl, nil
}

// startLocked starts the waiting flight.
func (f *Prover) startLocked() {
	fl := f.mu.nextFlight
	f.mu.querying, f.mu.nextFlight = true, nil
	go f.runFlight(fl)
}

// runFlight runs one flight, from the query of R to the proof.
func (f *Prover) runFlight(fl *proofFlight) {
	began := time.Now()
	answer, err := f.queryRV()
	fl.rv, fl.err = answer.rv, err
	var w *proofWaiter // nil: no request needs the proof
	switch {
	case err != nil:
	case fl.mustProve:
		w = f.addWaiter(answer)
	default:
		answer.proof.Close()
	}
	f.endQuery(fl, began)
	if err == nil {
		fl.state, fl.err = f.proveFlight(fl, w)
	}
	switch {
	case fl.err == nil:
		f.failures.Store(0)
		f.failingSince.Store(nil)
	case fl.mustProve:
		f.countFailure()
	}
	close(fl.done)
}

// queryRV learns R.
func (f *Prover) queryRV() (revision, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	generation, promised, began := f.resource.Generation(), f.resource.PromisedRV(), time.Now()
	rv, proof, err := f.upstream.Begin(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return revision{}, errors.Join(errSilent, err)
	case err != nil:
		return revision{}, err
	}
	if err := f.noteUpstreamRV(rv, promised, generation); err != nil {
		proof.Close()
		return revision{}, err
	}
	f.cost.observeQuery(time.Since(began))
	return revision{rv, generation, proof}, nil
}

// noteUpstreamRV notes R, the answer to a question that was sent after promised.
func (f *Prover) noteUpstreamRV(rv, promised, generation uint64) error {
	if rv < promised {
		f.resource.NoteHistoryReset(generation)
		return fmt.Errorf("%w: upstream is at %d, below %d which it has promised", ErrNotProven, rv, promised)
	}
	f.resource.NoteUpstreamRV(rv, generation)
	return nil
}

// endQuery starts the next flight, unless upstream refused this one's question: then those that
// wait get the same refusal.
func (f *Prover) endQuery(fl *proofFlight, began time.Time) {
	close(fl.rvReady)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.querying, f.mu.refusal = false, refusal{}
	if fl.err != nil {
		f.mu.refusal = refusal{fl.err, began.Add(pauseAfter(fl.err))}
	}
	next := f.mu.nextFlight
	switch {
	case next == nil:
	case f.mu.refusal.isInForce():
		f.mu.nextFlight, next.err = nil, fl.err
		close(next.rvReady)
		close(next.done)
	default:
		f.startLocked()
	}
}

// pauseAfter is how long a question is not sent again that upstream refused.
func pauseAfter(err error) time.Duration {
	if seconds, limited := apierrors.SuggestsClientDelay(err); limited {
		return max(refusedInterval, min(time.Duration(seconds)*time.Second, maxRefusedInterval))
	}
	return refusedInterval
}

// proveFlight waits until the cache is complete through R: by the mirror's own stream, or, if a
// request needs the proof, by a check of upstream.
func (f *Prover) proveFlight(fl *proofFlight, w *proofWaiter) (*cache.Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	least := proofWaitLimit
	if w != nil {
		least = streamWaitTimeout
		defer f.removeWaiter(w)
	}
	soon, stop := context.WithTimeoutCause(ctx, least, ErrNotProven)
	defer stop()
	began := time.Now()
	state, err := f.resource.AwaitSnapshot(soon, fl.rv)
	fl.streamWait = time.Since(began)
	f.cost.observeArrival(fl.streamWait, err == nil)
	if err == nil || w == nil {
		return state, err
	}
	return f.awaitCheck(ctx, w)
}
