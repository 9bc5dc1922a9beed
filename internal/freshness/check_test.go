package freshness

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"spillway/internal/cache"
)

// shows is an upstream whose state comes after a while.
func shows(after time.Duration, rv uint64, versions map[string]uint64) func(context.Context) (uint64, map[string]uint64,
	error) {
	return func(ctx context.Context) (uint64, map[string]uint64, error) {
		select {
		case <-time.After(after):
			return rv, versions, nil
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

// A small state that is upstream's is proven without history: its content is that of a
// resourceVersion which the log is yet to reach, and the log is left alone (W-213, W-214).
func TestProofByComparison(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(time.Second, 27, 0),
		state: shows(70*time.Millisecond, 26, map[string]uint64{"n/a": 11})}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		began := time.Now()
		s, err := f.Prove(t.Context())
		if err != nil || s.RV != 26 || s.Reached != 20 || s.Next != r.Log().Head() || s.Len() != 1 {
			t.Fatalf("%+v %v", s, err)
		}
		if took := time.Since(began); took != streamWaitTimeout+70*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if r.CompleteRV() != 20 {
			t.Errorf("history moved to %d", r.CompleteRV())
		}
		time.Sleep(2 * time.Second) // the bookmark is still worth having
		checkState(t, r, 27, "a=a@11")
	})
}

// What differs is not proven, and nothing but the mirror can mend it.
func TestComparisonWaitsForTheMirror(t *testing.T) {
	for name, versions := range map[string]map[string]uint64{
		"a version": {"n/a": 24}, "one more": {"n/a": 11, "n/b": 24}, "one less": {}, "another": {"n/b": 11},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upstream{begin: at(25), prove: says(time.Minute, 27, 0), state: shows(0, 26, versions)}
			proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
				checkProve(t, f, ErrNotProven, unproven)
			})
		})
	}
	u := &upstream{begin: at(25), prove: says(time.Minute, 27, 0),
		state: shows(0, 26, map[string]uint64{"n/a": 11, "n/b": 23})}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(100*time.Millisecond, func() { _ = r.Add(pod(t, "b", 22)) })
		time.AfterFunc(200*time.Millisecond, func() { _ = r.Update(pod(t, "b", 23)) })
		checkProve(t, f, nil, 200*time.Millisecond)
		if r.CompleteRV() != 23 {
			t.Errorf("history moved to %d", r.CompleteRV())
		}
	})
}

// A comparison across the end of one history and the beginning of another says nothing. The next
// one lies within the other.
func TestNoComparisonAcrossVoid(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(time.Minute, 27, 0),
		state: shows(time.Second, 26, map[string]uint64{"n/a": 11})}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(500*time.Millisecond, func() { _ = r.Replace(objects(t, "a=a@11"), 15) })
		checkProve(t, f, nil, streamWaitTimeout+comparisonInterval+time.Second)
		if u.compared != 2 {
			t.Errorf("%d comparisons", u.compared)
		}
	})
}

// A flight that begins while a check waits for its bookmark need not wait for the end of that
// check: checks overlap, a little apart (W-213).
func TestChecksOverlap(t *testing.T) {
	u := &upstream{begin: at(25)}
	var rv uint64 = 25
	var mu sync.Mutex
	u.begin = func(context.Context) (uint64, error) { mu.Lock(); defer mu.Unlock(); rv++; return rv, nil }
	u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
		mu.Lock()
		now := rv
		mu.Unlock()
		return says(1700*time.Millisecond, now, 0)(ctx, from)
	}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		var asked sync.WaitGroup
		for range 100 {
			asked.Go(func() {
				began := time.Now()
				if _, err := f.Prove(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > streamWaitTimeout+bookmarkInterval+1700*time.Millisecond {
					t.Errorf("a proof took %v", took)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		asked.Wait()
		if most := int(7*time.Second/bookmarkInterval) + 1; u.proving > most || u.proving < 6 {
			t.Errorf("%d bookmarks were requested, at most %d are due", u.proving, most)
		}
	})
}

// R is known long before it is proven.
func TestTheUpstreamVersionIsKnownBeforeItIsProven(t *testing.T) {
	u := &upstream{begin: func(context.Context) (uint64, error) { time.Sleep(time.Millisecond); return 25, nil }}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		began := time.Now()
		if rv, err := f.UpstreamRV(t.Context()); rv != 25 || err != nil || time.Since(began) != time.Millisecond {
			t.Errorf("%d %v after %v", rv, err, time.Since(began))
		}
		u.begin = func(context.Context) (uint64, error) { return 0, errUpstream }
		if rv, err := f.UpstreamRV(t.Context()); !errors.Is(err, errUpstream) {
			t.Errorf("%d %v", rv, err)
		}
	})
}

// The slower upstream answers, the fewer bookmarks are requested: half as many at the least.
func TestSlowUpstreamGetsFewerQuestions(t *testing.T) {
	asked := map[time.Duration]int{}
	for _, took := range []time.Duration{0, 25 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond} {
		u := &upstream{}
		var rv uint64 = 25
		var mu sync.Mutex
		u.begin = func(context.Context) (uint64, error) {
			time.Sleep(took)
			mu.Lock()
			defer mu.Unlock()
			rv++
			return rv, nil
		}
		u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
			mu.Lock()
			now := rv
			mu.Unlock()
			return says(500*time.Millisecond, now, 0)(ctx, from)
		}
		proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
			var waiting sync.WaitGroup
			for range 200 {
				waiting.Go(func() {
					if _, err := f.Prove(t.Context()); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(100 * time.Millisecond)
			}
			waiting.Wait()
			asked[took] = u.proving
		})
	}
	if asked[25*time.Millisecond] >= asked[0] || asked[50*time.Millisecond] >= asked[25*time.Millisecond] ||
		asked[500*time.Millisecond] < asked[0]/3 {
		t.Errorf("bookmarks by the time of a query: %v", asked)
	}
}
