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
	// exploreInterval and listsPerExplore are how often a LIST waits against expectation, so that a
	// resource that has become busy is found out: one a second at most, and one in so many. What it
	// waits for may be the round trip alone, which takes 100 ms where upstream's own cache is as quiet
	// (W-211 d).
	exploreInterval = time.Second
	listsPerExplore = 20
	// minExplorePrice is a price below which there is nothing to be found out.
	minExplorePrice = 500 * time.Microsecond
	// defaultObjectCost is what upstream's making of one object and its way through here are taken to
	// cost before one was measured.
	defaultObjectCost = 20 * time.Microsecond
	// minCostedObjects is how many objects a LIST must have to show the price of one.
	minCostedObjects = 10
)

// listCostModel weighs the two ways to answer a consistent LIST. Both begin with a round trip: the
// query of R, or the LIST itself. The difference is the wait from R until the cache is proven,
// against the API server's encoding of the objects and their transfer. Both are measured, per
// resource, and the smaller is taken. Hence a quiet resource costs no LIST more than before, and
// the LISTs of a busy one no longer reach upstream.
type listCostModel struct {
	mu                sync.Mutex
	queryTime         average // of a query of R
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
func (m *listCostModel) observeQuery(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queryTime.add(took)
}

// averageQueryTime is how long a query of R takes.
func (m *listCostModel) averageQueryTime() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queryTime.value
}

// observeArrival records how long a flight waited for the mirror's own stream, and whether R
// arrived.
func (m *listCostModel) observeArrival(waited time.Duration, arrived bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !arrived {
		waited = proofWaitLimit
	}
	m.arrivalTime.add(waited)
}

// observeUpstreamList records how long upstream took to answer a LIST of n objects. Before the
// first query of R all of that counts.
func (m *listCostModel) observeUpstreamList(n int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n >= minCostedObjects {
		m.objectTime.add(max(took-m.queryTime.value, 0) / time.Duration(n))
	}
}

// priceLocked is what n objects are expected to cost if they pass through.
func (m *listCostModel) priceLocked(n int) time.Duration {
	if !m.objectTime.hasSample {
		return time.Duration(n) * defaultObjectCost
	}
	return time.Duration(n) * m.objectTime.value
}

// waitLimit is how long a LIST of n objects is to wait for a proof: not at all if upstream is
// expected to answer sooner. querying says that a query of R is under way, which must end first. An
// exploring LIST waits no longer than the expected time of upstream.
func (m *listCostModel) waitLimit(n int, querying bool) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	price, cost := m.priceLocked(n), m.arrivalTime.value
	if querying {
		cost += m.queryTime.value / 2
	}
	if m.arrivalTime.hasSample && cost <= price {
		return proofWaitLimit
	}
	m.listsSinceExplore++
	if !m.canExploreLocked(price) {
		return 0
	}
	m.nextExplore, m.listsSinceExplore = time.Now().Add(exploreInterval), 0
	return min(m.queryTime.value+price, proofWaitLimit)
}

// canExploreLocked reports that a LIST with a price may wait against expectation.
func (m *listCostModel) canExploreLocked(price time.Duration) bool {
	if price < minExplorePrice || time.Now().Before(m.nextExplore) {
		return false
	}
	return !m.arrivalTime.hasSample || m.listsSinceExplore >= listsPerExplore
}

// observeProof records how long a LIST of n objects that was answered from memory had to wait after
// R. One that was faster than upstream lets the next be tried at once.
func (m *listCostModel) observeProof(n int, waited time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if waited <= m.priceLocked(n) {
		m.nextExplore, m.listsSinceExplore = time.Time{}, listsPerExplore
	}
}

// ErrUpstreamFaster says that upstream is expected to answer sooner than the cache can be proven.
var ErrUpstreamFaster = errors.New("upstream is expected to answer before the cache can be proven")

// TryProve is Prove for a LIST of n objects that can as well pass through. It returns
// ErrUpstreamFaster at once if that is expected to be sooner, and ErrNotProven after proofWaitLimit
// at most.
func (p *Prover) TryProve(ctx context.Context, n int) (*cache.Snapshot, error) {
	p.mu.Lock()
	querying := p.mu.querying
	p.mu.Unlock()
	wait := p.cost.waitLimit(n, querying)
	if wait == 0 {
		return nil, ErrUpstreamFaster
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrNotProven)
	defer cancel()
	fl, err := p.joinFlight(false)
	if err != nil {
		return nil, ErrUpstreamFaster // it refuses queries at present
	}
	state, err := p.awaitFlight(ctx, fl)
	if err == nil {
		p.cost.observeProof(n, fl.streamWait)
	}
	return state, err
}

// ObserveUpstreamList records how long upstream took to answer a consistent LIST of n objects in
// full.
func (p *Prover) ObserveUpstreamList(n int, took time.Duration) { p.cost.observeUpstreamList(n, took) }
