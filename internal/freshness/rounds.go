package freshness

import (
	"time"

	"spillway/internal/cache"
)

const (
	// bookmarkInterval is how soon one watch for a bookmark may follow another. Such a watch takes up
	// to 1.7 s (W-211 i), so two overlap while flights keep coming: a new flight waits for the next
	// one, not for the end of this one. Mostly the bookmark of this one serves it, too, because it is
	// sent after R.
	bookmarkInterval = time.Second
	// comparisonInterval is the time between two reads of upstream's state, whatever becomes of them.
	// It leaves the next one half of the time that a request has.
	comparisonInterval = proofTimeout / 2
	// slowdownQueries is how many query times are added to an interval, at most the interval itself:
	// an upstream that is slow gets no more questions than one that is well, though each is owed for
	// longer.
	slowdownQueries = 20
)

// proofWaiter is one flight that waits for a state that is complete through rv.
type proofWaiter struct {
	// Static after construction.
	rv            uint64
	states        chan *cache.Snapshot // receives such a state, once at most
	bookmarkEnded chan struct{}        // closed when its watch for a bookmark has ended

	// Guarded by Prover.mu.
	bookmarkBegun bool // a watch for a bookmark has begun for it
	// Why the last bookmark and the last comparison did not satisfy it.
	bookmarkErr, comparisonErr error
}

// queryAnswer is R, and the connection that it came on.
type queryAnswer struct {
	rv         uint64
	generation uint64 // of the cache, before the query
	proof      Proof
}

// rounds are checks of upstream, each for all flights that wait when it begins. They begin an
// interval apart and may overlap, so one that hangs holds up no other. Prover.mu guards them.
type rounds struct {
	interval    time.Duration // static: while upstream is fast
	next        time.Time     // when the next one may begin
	isScheduled bool          // a timer will begin it
}

// intervalAt is the interval while upstream takes so long to answer a query of R. For example, a
// second becomes two from 50 ms on.
func (r *rounds) intervalAt(queryTime time.Duration) time.Duration {
	return r.interval + min(slowdownQueries*queryTime, r.interval)
}

// scheduleLocked has the next round begin as soon as it may.
func (r *rounds) scheduleLocked(begin func()) {
	if !r.isScheduled {
		r.isScheduled = true
		time.AfterFunc(time.Until(r.next), begin)
	}
}

// noteErrorLocked notes the error of a round. After a refusal the next one waits for its
// Retry-After.
func (r *rounds) noteErrorLocked(began time.Time, err error) {
	if again := began.Add(pauseAfter(err)); err != nil && again.After(r.next) {
		r.next = again
	}
}
