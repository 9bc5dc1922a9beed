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

// Proof is one upstream connection. Whatever it says comes from the API server that answered its
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
	// refusedInterval is how long a refused query is not sent again, from its beginning on.
	// maxRefusedInterval is how long at most if the refusal has a Retry-After: a proxy in front of
	// upstream may ask for an hour, and recover in a minute.
	refusedInterval    = 100 * time.Millisecond
	maxRefusedInterval = 8 * time.Second
	// failedProofsLimit is how many flights in a row may fail until requests that need a proof should
	// pass through.
	failedProofsLimit = 2
	// unprovableTimeout is how long proofs must have failed until requests should not wait for one.
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
		querying   bool         // a flight is querying R
		nextFlight *proofFlight // the one that queries R next
		refusal    refusal      // of the last query

		waiters      map[*proofWaiter]struct{}
		newestAnswer queryAnswer // whose connection the next watch for a bookmark takes
		bookmarks    rounds
		comparisons  rounds
	}
}

// refusal is an error in answer to a query of R, which requests get until it may be sent again.
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
	p := &Prover{resource: r, upstream: u}
	p.mu.waiters = map[*proofWaiter]struct{}{}
	p.mu.bookmarks.interval, p.mu.comparisons.interval = bookmarkInterval, comparisonInterval
	return p
}

// Prove returns a state that holds everything that was acknowledged before the call; ErrNotProven
// or upstream's error if there is none in time; ctx's error if that comes first. The flight goes on
// without the caller.
//
// A query without an answer is repeated once. The request would otherwise pass through to an
// upstream that is too slow for a LIST of one item, and request the whole state.
func (p *Prover) Prove(ctx context.Context) (*cache.Snapshot, error) {
	state, err := p.proveOnce(ctx)
	if errors.Is(err, errSilent) {
		return p.proveOnce(ctx)
	}
	return state, err
}

func (p *Prover) proveOnce(ctx context.Context) (*cache.Snapshot, error) {
	fl, err := p.joinFlight(true)
	if err != nil {
		p.countFailure()
		return nil, err
	}
	return p.awaitFlight(ctx, fl)
}

// UpstreamRV returns R: a resourceVersion that everything acknowledged before the call is at or
// below. That proves nothing about the cache, which R may not have reached yet (W-212).
func (p *Prover) UpstreamRV(ctx context.Context) (uint64, error) {
	fl, err := p.joinFlight(false)
	if err != nil {
		return 0, err
	}
	select {
	case <-fl.rvReady:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if fl.rv == 0 {
		_, err := p.awaitFlight(ctx, fl)
		return 0, err
	}
	return fl.rv, nil
}

// IsFailing reports that proofs have failed lately. It then starts another one, so that the answer
// can change.
func (p *Prover) IsFailing() bool {
	if p.failures.Load() < failedProofsLimit {
		return false
	}
	_, _ = p.joinFlight(true) // an error says that it is too early
	return true
}

// IsUnprovable reports that no proof has succeeded for so long that requests should not wait for
// another one.
func (p *Prover) IsUnprovable() bool {
	since := p.failingSince.Load()
	return since != nil && time.Since(*since) >= unprovableTimeout
}

// countFailure counts a proof that failed a request which insisted.
func (p *Prover) countFailure() {
	p.failures.Add(1)
	p.failingSince.CompareAndSwap(nil, new(time.Now()))
}

// awaitFlight waits for a flight. The newest state is as good as the one that was proven, and
// spares the log behind it.
func (p *Prover) awaitFlight(ctx context.Context, fl *proofFlight) (*cache.Snapshot, error) {
	select {
	case <-fl.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fl.err != nil {
		return nil, fl.err
	}
	now := p.resource.Snapshot()
	switch {
	case now.Generation() != fl.state.Generation() || p.resource.IsHistoryReset():
		return nil, fmt.Errorf("%w: history has become void since", ErrNotProven)
	case now.RV >= fl.state.RV:
		return now, nil
	}
	return fl.state, nil
}

// joinFlight returns a flight that has not queried R yet: one that has may have done so too early.
// An error is upstream's refusal of the last query, which is not to be sent again yet.
func (p *Prover) joinFlight(mustProve bool) (*proofFlight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.refusal.isInForce() {
		return nil, p.mu.refusal.err
	}
	if p.mu.nextFlight == nil {
		p.mu.nextFlight = &proofFlight{rvReady: make(chan struct{}), done: make(chan struct{})}
	}
	fl := p.mu.nextFlight
	fl.mustProve = fl.mustProve || mustProve
	if !p.mu.querying {
		p.startLocked()
	}
	return fl, nil
}

// startLocked starts the waiting flight.
func (p *Prover) startLocked() {
	fl := p.mu.nextFlight
	p.mu.querying, p.mu.nextFlight = true, nil
	go p.runFlight(fl)
}

// runFlight runs one flight, from the query of R to the proof.
func (p *Prover) runFlight(fl *proofFlight) {
	began := time.Now()
	answer, err := p.queryRV()
	fl.rv, fl.err = answer.rv, err
	var w *proofWaiter // nil: no request needs the proof
	switch {
	case err != nil:
	case fl.mustProve:
		w = p.addWaiter(answer)
	default:
		answer.proof.Close()
	}
	p.endQuery(fl, began)
	if err == nil {
		fl.state, fl.err = p.proveFlight(fl, w)
	}
	switch {
	case fl.err == nil:
		p.failures.Store(0)
		p.failingSince.Store(nil)
	case fl.mustProve:
		p.countFailure()
	}
	close(fl.done)
}

// queryRV learns R.
func (p *Prover) queryRV() (queryAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	generation, promised, began := p.resource.Generation(), p.resource.PromisedRV(), time.Now()
	rv, proof, err := p.upstream.Begin(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return queryAnswer{}, errors.Join(errSilent, err)
	case err != nil:
		return queryAnswer{}, err
	}
	if err := p.noteUpstreamRV(rv, promised, generation); err != nil {
		proof.Close()
		return queryAnswer{}, err
	}
	p.cost.observeQuery(time.Since(began))
	return queryAnswer{rv, generation, proof}, nil
}

// noteUpstreamRV notes R, the answer to a query that was sent after promised.
func (p *Prover) noteUpstreamRV(rv, promised, generation uint64) error {
	if rv < promised {
		p.resource.NoteHistoryReset(generation)
		return fmt.Errorf("%w: upstream is at %d, below %d which it has promised", ErrNotProven, rv, promised)
	}
	p.resource.NoteUpstreamRV(rv, generation)
	return nil
}

// endQuery starts the next flight, unless upstream refused this one's query: then the requests that
// wait for the next one get the same refusal.
func (p *Prover) endQuery(fl *proofFlight, began time.Time) {
	close(fl.rvReady)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.querying, p.mu.refusal = false, refusal{}
	if fl.err != nil {
		p.mu.refusal = refusal{fl.err, began.Add(pauseAfter(fl.err))}
	}
	next := p.mu.nextFlight
	switch {
	case next == nil:
	case p.mu.refusal.isInForce():
		p.mu.nextFlight, next.err = nil, fl.err
		close(next.rvReady)
		close(next.done)
	default:
		p.startLocked()
	}
}

// pauseAfter is how long a query is not sent again that upstream refused.
func pauseAfter(err error) time.Duration {
	if seconds, limited := apierrors.SuggestsClientDelay(err); limited {
		return max(refusedInterval, min(time.Duration(seconds)*time.Second, maxRefusedInterval))
	}
	return refusedInterval
}

// proveFlight waits until the cache is complete through R: by the mirror's own stream, or, if a
// request needs the proof, by a check of upstream.
func (p *Prover) proveFlight(fl *proofFlight, w *proofWaiter) (*cache.Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), proofTimeout, ErrNotProven)
	defer cancel()
	least := proofWaitLimit
	if w != nil {
		least = streamWaitTimeout
		defer p.removeWaiter(w)
	}
	soon, stop := context.WithTimeoutCause(ctx, least, ErrNotProven)
	defer stop()
	began := time.Now()
	state, err := p.resource.AwaitSnapshot(soon, fl.rv)
	fl.streamWait = time.Since(began)
	p.cost.observeArrival(fl.streamWait, err == nil)
	if err == nil || w == nil {
		return state, err
	}
	return p.awaitCheck(ctx, w)
}
