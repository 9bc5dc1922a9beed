package freshness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/cache"
)

// answer is how a LIST of n objects is answered, and after what time.
func answer(t *testing.T, f *Prover, n int) (fromMemory bool, took time.Duration) {
	t.Helper()
	began := time.Now()
	_, err := f.TryProve(t.Context(), n)
	if err != nil && !errors.Is(err, ErrNotProven) && !errors.Is(err, ErrUpstreamFaster) {
		t.Error(err)
	}
	return err == nil, time.Since(began)
}

// On a quiet resource one LIST a second risks a bounded wait, and the others pass through at once.
// None has upstream checked.
func TestQuietResourceIsNotWorthAProof(t *testing.T) {
	u := &upstream{begin: at(25)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		waited, lists := 0, 0
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			fromMemory, took := answer(t, f, 1000)
			if price := 1000 * defaultObjectCost; fromMemory || took > price {
				t.Fatalf("answered from memory: %v, after %v", fromMemory, took)
			}
			if lists++; took > 0 {
				waited++
			}
		}
		if waited > 10 || waited < 8 || lists < 900 || u.begun != waited {
			t.Errorf("%d of %d LISTs waited, with %d questions", waited, lists, u.begun)
		}
		if u.proving+u.compared != 0 {
			t.Errorf("upstream was checked for a LIST: %d bookmarks, %d states", u.proving, u.compared)
		}
		if f.IsFailing() {
			t.Error("a LIST that need not have waited raises doubts")
		}
	})
}

// A resource that becomes busy is found out within seconds, and one that becomes quiet again at
// once.
func TestBusyResourceIsWorthAProof(t *testing.T) {
	u := &upstream{}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		u.begin = func(context.Context) (uint64, error) { time.Sleep(time.Millisecond); return r.CompleteRV() + 1, nil }
		for range 3 {
			answer(t, f, 1000)
			time.Sleep(time.Second)
		}
		var busy atomic.Bool
		busy.Store(true)
		go func() {
			for rv := uint64(30); busy.Load(); rv++ {
				time.Sleep(time.Millisecond)
				_ = r.Add(pod(t, "x", rv))
			}
		}()
		time.Sleep(2 * time.Second)
		fromMemory := 0
		for range 1000 {
			if hit, _ := answer(t, f, 1000); hit {
				fromMemory++
			}
			time.Sleep(2 * time.Millisecond)
		}
		if fromMemory < 900 {
			t.Errorf("%d of 1000 LISTs were answered from memory", fromMemory)
		}
		busy.Store(false)
		time.Sleep(time.Second)
		late := 0
		for range 100 {
			if _, took := answer(t, f, 1000); took > 0 {
				late++
			}
		}
		if late > 5 {
			t.Errorf("%d of 100 LISTs waited for a resource that has become quiet", late)
		}
	})
}

// The price of a LIST upstream is measured: where upstream is slow, LISTs wait longer for a proof.
func TestListsWaitLongerForProofWhereUpstreamIsSlow(t *testing.T) {
	u := &upstream{}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		u.begin = func(context.Context) (uint64, error) {
			rv := r.CompleteRV() + 5
			time.AfterFunc(20*time.Millisecond, func() { _ = r.Bookmark(r.BookmarkTemplate(), rv) })
			return rv, nil
		}
		lists := func(price time.Duration) (fromMemory int) {
			for range 1000 {
				hit, _ := answer(t, f, 100)
				if hit {
					fromMemory++
				} else {
					f.ObserveUpstreamList(100, price)
				}
				time.Sleep(5 * time.Millisecond)
			}
			return fromMemory
		}
		if n := lists(5 * time.Millisecond); n > 10 {
			t.Errorf("%d of 1000 cheap LISTs waited longer for a proof than for upstream", n)
		}
		if n := lists(60 * time.Millisecond); n < 900 {
			t.Errorf("%d of 1000 dear LISTs were answered from memory", n)
		}
	})
}

// A LIST of next to nothing has nothing to gain.
func TestSmallListsPassThrough(t *testing.T) {
	u := &upstream{begin: at(25)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		if fromMemory, took := answer(t, f, 3); fromMemory || took != 0 || u.begun != 0 {
			t.Errorf("from memory: %v, after %v and %d questions", fromMemory, took, u.begun)
		}
	})
}
