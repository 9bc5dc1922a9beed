package flowcontrol

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// RateLimiter bounds the rate of requests of each flow, by a token bucket with a rate and a burst.
//
// There are two generations of buckets. One that is used moves to the young generation; when that
// is as old as an empty bucket needs to fill, or has as many buckets as may be, the old one is
// dropped and the young one is old. So a bucket is forgotten when it is full and as good as new, or
// else when generationBucketsLimit others were used since: memory is bounded whatever the number of
// flows.
type RateLimiter struct {
	every rate.Limit
	burst int
	lasts time.Duration // a generation: as long as an empty bucket needs to fill, and no moment

	mu struct {
		sync.Mutex
		young, old map[Flow]*rate.Limiter
		since      time.Time // when young began
	}
}

// generationBucketsLimit is how many buckets a generation has at most: some 2 MB for both of them.
const generationBucketsLimit = 8192

// NewRateLimiter returns rates of perSecond requests with bursts of burst, at least one; nil, which
// admits every request, if perSecond is 0.
func NewRateLimiter(perSecond float64, burst int) *RateLimiter {
	if perSecond <= 0 {
		return nil
	}
	burst = max(burst, 1)
	fills := time.Duration(float64(burst) / perSecond * float64(time.Second))
	r := &RateLimiter{every: rate.Limit(perSecond), burst: burst, lasts: max(fills, time.Second)}
	r.mu.young = map[Flow]*rate.Limiter{}
	return r
}

// Allow counts a request of a flow, or returns why it may not be. Any goroutine may call it.
func (r *RateLimiter) Allow(key Flow) *Refusal {
	if r == nil {
		return nil
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	bucket := r.bucketLocked(key, now)
	if bucket.AllowN(now, 1) {
		return nil
	}
	next := time.Duration((1 - bucket.TokensAt(now)) / float64(r.every) * float64(time.Second))
	// One of the refused requests gets the next token; the others should retry one by one after it.
	after := next + rand.N(next+time.Second) // #nosec G404 -- spreads times
	return &Refusal{Reason: ReasonRate, RetryAfter: min((after + time.Second - 1).Truncate(time.Second), retryAfterMax)}
}

func (r *RateLimiter) bucketLocked(key Flow, now time.Time) *rate.Limiter {
	if now.Sub(r.mu.since) >= r.lasts || len(r.mu.young) >= generationBucketsLimit {
		r.turnLocked(now)
	}
	if b := r.mu.young[key]; b != nil {
		return b
	}
	b := r.mu.old[key]
	if b == nil {
		b = rate.NewLimiter(r.every, r.burst)
	}
	r.mu.young[key] = b
	return b
}

// turnLocked begins a generation.
func (r *RateLimiter) turnLocked(now time.Time) {
	r.mu.old, r.mu.young = r.mu.young, map[Flow]*rate.Limiter{}
	r.mu.since = now
}
