package flowcontrol

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRatesNone(t *testing.T) {
	r := NewRateLimiter(0, 10)
	for range 1000 {
		if refusal := r.Allow(key(0)); refusal != nil {
			t.Fatal(refusal)
		}
	}
}

// A flow sends a burst and then at a rate, whatever others do; a refusal has a time to retry.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRateLimiter(2, 5)
		allowed := func(k Flow, n int) (ok int, last *Refusal) {
			for range n {
				if refusal := r.Allow(k); refusal == nil {
					ok++
				} else {
					last = refusal
				}
			}
			return ok, last
		}
		ok, last := allowed(key(0), 100)
		if ok != 5 {
			t.Errorf("%d of a burst of 5", ok)
		}
		refused(t, last, ReasonRate)
		if last.RetryAfter > 2*time.Second {
			t.Errorf("the next one is allowed in half a second, and Retry-After is %s", last.RetryAfter)
		}
		if ok, _ := allowed(key(1), 100); ok != 5 {
			t.Errorf("another flow: %d of a burst of 5", ok)
		}
		total := 0
		for range 60 {
			time.Sleep(time.Second)
			ok, _ := allowed(key(0), 100)
			total += ok
		}
		if total != 120 { // the bucket lasts through many generations
			t.Errorf("%d in a minute, want 120", total)
		}
		time.Sleep(time.Hour)
		if ok, _ := allowed(key(0), 100); ok != 5 {
			t.Errorf("%d after an hour, want a burst of 5", ok)
		}
	})
}

// However many flows ask, no more buckets are kept than two generations have.
func TestRatesBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRateLimiter(1, 60)
		for n := range 5 * generationBucketsLimit {
			if refusal := r.Allow(key(n)); refusal != nil {
				t.Fatal(refusal)
			}
			if have := len(r.mu.young) + len(r.mu.old); have > 2*generationBucketsLimit {
				t.Fatalf("%d buckets after %d flows", have, n)
			}
		}
	})
}

func BenchmarkRates(b *testing.B) {
	r, k := NewRateLimiter(1e9, 1e9), key(0)
	b.ReportAllocs()
	for b.Loop() {
		if r.Allow(k) != nil {
			b.Fatal("refused")
		}
	}
}
