package flowcontrol

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// RateLimiter bounds the rate of requests of each flow, by a token bucket each.
//
// Buckets live in two generations, young and old. Use moves a bucket to young. When young is older
// than generationAge, or has generationBucketsLimit buckets, old is dropped and young becomes old.
// A dropped bucket was therefore full again, or unused while generationBucketsLimit others were
// used. So memory is bounded whatever the number of flows.
type RateLimiter struct {
	perSecond     rate.Limit
	burst         int
	generationAge time.Duration // an empty bucket is full again after it

	mu struct {
		sync.Mutex
		young, old map[Flow]*rate.Limiter
		since      time.Time // when young began
	}
}

// generationBucketsLimit is how many buckets a generation has at most.
const generationBucketsLimit = 8192

// NewRateLimiter bounds each flow to perSecond requests, with bursts of at least one. It returns
// nil, which admits every request, if perSecond is not positive.
func NewRateLimiter(perSecond float64, burst int) *RateLimiter {
	if perSecond <= 0 {
		return nil
	}
	burst = max(burst, 1)
	fillTime := time.Duration(float64(burst) / perSecond * float64(time.Second))
	r := &RateLimiter{perSecond: rate.Limit(perSecond), burst: burst, generationAge: max(fillTime, time.Second)}
	r.mu.young = map[Flow]*rate.Limiter{}
	return r
}

// Allow counts a request of a flow, or returns the reason why it is refused. Any goroutine may call
// it.
func (r *RateLimiter) Allow(flow Flow) *Refusal {
	if r == nil {
		return nil
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	bucket := r.bucketLocked(flow, now)
	if bucket.AllowN(now, 1) {
		return nil
	}
	next := time.Duration((1 - bucket.TokensAt(now)) / float64(r.perSecond) * float64(time.Second))
	// One of the refused requests gets the next token; the others should retry after it, spread over
	// time.
	after := next + rand.N(next+time.Second) // #nosec G404 -- spreads times
	return &Refusal{Reason: ReasonRate, RetryAfter: min((after + time.Second - 1).Truncate(time.Second), retryAfterMax)}
}

// bucketLocked is the bucket of a flow, in the young generation.
func (r *RateLimiter) bucketLocked(flow Flow, now time.Time) *rate.Limiter {
	if now.Sub(r.mu.since) >= r.generationAge || len(r.mu.young) >= generationBucketsLimit {
		r.rotateLocked(now)
	}
	if b := r.mu.young[flow]; b != nil {
		return b
	}
	b := r.mu.old[flow]
	if b == nil {
		b = rate.NewLimiter(r.perSecond, r.burst)
	}
	r.mu.young[flow] = b
	return b
}

// rotateLocked begins a generation.
func (r *RateLimiter) rotateLocked(now time.Time) {
	r.mu.old, r.mu.young = r.mu.young, map[Flow]*rate.Limiter{}
	r.mu.since = now
}
