package freshness

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/internal/cache"
)

const (
	// proofWaitLimit is how long a LIST waits for a proof at most, and the presumed cost of a proof
	// that did not come by the mirror's own stream.
	proofWaitLimit = 100 * time.Millisecond
	// exploreInterval and exploreShare are how often a LIST waits against expectation, so that a
	// resource that has become busy is found out: one a second, and one in so many. What it waits for
	// may be the round trip alone, which takes 100 ms where upstream's own cache is as quiet (W-211
	// d).
	exploreInterval = time.Second
	exploreShare    = 20
	// minExplorePrice is a price below which there is nothing to be found out.
	minExplorePrice = 500 * time.Microsecond
	// defaultObjectCost is what upstream's making of one object and its way through here are taken to
	// cost before one was measured.
	defaultObjectCost = 20 * time.Microsecond
	// minCostedObjects is how many objects a LIST must have to tell the price of one.
	minCostedObjects = 10
)

// listCostModel weighs the two ways to answer a consistent LIST. Both begin with a round trip: the
// query of R, or the LIST itself. The difference is the wait from R until the cache is proven,
// against the apiserver's encoding of the objects and their transfer. Both are measured, per
// resource, and the smaller is taken. Hence a quiet resource costs no LIST more than before, and
// the LISTs of a busy one no longer reach upstream.
type listCostModel struct {
	mu                sync.Mutex
	queryTime         average // a question for R
	arrivalTime       average // from R until the mirror's own stream got there, or proofWaitLimit
	objectTime        average // of a LIST that passed through, above a round trip
	nextExplore       time.Time
	listsSinceExplore int // LISTs that did not wait since the last one that explored
}

// average is one that forgets: each sample counts a fifth.
type average struct {
	value     time.Duration
	hasSample bool
}

func (a *average) add(sample time.Duration) {
	if !a.hasSample {
		a.value, a.hasSample = sample, true
		return
	}
	a.value += (sample - a.value) / 5
}

// observeQuery records how long a query of R took.
func (w *listCostModel) observeQuery(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queryTime.add(took)
}

// averageQueryTime is how long a query of R takes.
func (w *listCostModel) averageQueryTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queryTime.value
}

// observeArrival records how long a flight waited for the mirror's own stream, and whether R
// arrived.
func (w *listCostModel) observeArrival(waited time.Duration, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !there {
		waited = proofWaitLimit
	}
	w.arrivalTime.add(waited)
}

// observeUpstreamList records how long upstream took to answer a LIST of n objects. Before the
// first query of R all of that counts.
func (w *listCostModel) observeUpstreamList(n int, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n >= minCostedObjects {
		w.objectTime.add(max(took-w.queryTime.value, 0) / time.Duration(n))
	}
}

// priceLocked is what n objects are expected to cost if they pass through.
func (w *listCostModel) priceLocked(n int) time.Duration {
	if !w.objectTime.hasSample {
		return time.Duration(n) * defaultObjectCost
	}
	return time.Duration(n) * w.objectTime.value
}

// waitLimit is how long a LIST of n objects is to wait for a proof: not at all if upstream is
// expected to answer sooner. busy says that a query of R is under way, which must end first. An
// exploring LIST waits no longer than the expected time of upstream.
func (w *listCostModel) waitLimit(n int, busy bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	price, cost := w.priceLocked(n), w.arrivalTime.value
	if busy {
		cost += w.queryTime.value / 2
	}
	if w.arrivalTime.hasSample && cost <= price {
		return proofWaitLimit
	}
	now := time.Now()
	if w.listsSinceExplore++; price < minExplorePrice || now.Before(w.nextExplore) || w.listsSinceExplore < exploreShare &&
		w.arrivalTime.hasSample {
		return 0
	}
	w.nextExplore, w.listsSinceExplore = now.Add(exploreInterval), 0
	return min(w.queryTime.value+price, proofWaitLimit)
}

// observeProof records how long a LIST of n objects that was answered from memory had to wait after
// R. One that was faster than upstream lets the next be tried at once.
func (w *listCostModel) observeProof(n int, waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waited <= w.priceLocked(n) {
		w.nextExplore, w.listsSinceExplore = time.Time{}, exploreShare
	}
}

// ErrUpstreamFaster says that upstream is expected to answer sooner than the cache can be proven.
var ErrUpstreamFaster = errors.New("upstream is expected to answer before the cache can be proven")

// TryProve is Prove for a LIST of n objects that can as well pass through. It returns
// ErrUpstreamFaster at once if that is expected to be sooner, and ErrNotProven after proofWaitLimit
// at most.
func (f *Prover) TryProve(ctx context.Context, n int) (*cache.Snapshot, error) {
	f.mu.Lock()
	querying := f.mu.querying
	f.mu.Unlock()
	wait := f.cost.waitLimit(n, querying)
	if wait == 0 {
		return nil, ErrUpstreamFaster
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrNotProven)
	defer cancel()
	fl, err := f.joinFlight(false)
	if err != nil {
		return nil, ErrUpstreamFaster // it does not answer questions at present
	}
	state, err := f.awaitFlight(ctx, fl)
	if err == nil {
		f.cost.observeProof(n, fl.streamWait)
	}
	return state, err
}

// ObserveUpstreamList records how long upstream took to answer a consistent LIST of n objects in
// full.
func (f *Prover) ObserveUpstreamList(n int, took time.Duration) { f.cost.observeUpstreamList(n, took) }
