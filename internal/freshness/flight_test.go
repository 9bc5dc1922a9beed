package freshness

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/cache"
)

// A request shares no flight that began before it: what was acknowledged since may not be in that
// flight's R. All waiting requests share the next.
func TestProofsAreShared(t *testing.T) {
	listed := make(chan uint64)
	u := &upstream{}
	u.begin = func(context.Context) (uint64, error) { return <-listed, nil }
	synctest.Test(t, func(t *testing.T) {
		listed = make(chan uint64)
		r := newPods(unlimited)
		_ = r.Replace(nil, 20)
		f := New(r, u)
		var first, rest sync.WaitGroup
		firstDone, restDone := 0, 0
		first.Go(func() { _, _ = f.Prove(t.Context()); firstDone++ })
		synctest.Wait()
		var mu sync.Mutex
		for range 50 {
			rest.Go(func() {
				if _, err := f.Prove(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				restDone++
			})
		}
		synctest.Wait()
		if u.begun != 1 || firstDone != 0 {
			t.Fatalf("%d flights in the air", u.begun)
		}
		listed <- 20
		first.Wait()
		synctest.Wait()
		if u.begun != 2 || restDone != 0 {
			t.Fatalf("%d flights, and %d callers served by one that began before they asked", u.begun, restDone)
		}
		listed <- 20
		rest.Wait()
		synctest.Wait()
		if u.begun != 2 || restDone != 50 {
			t.Errorf("%d flights for %d callers", u.begun, restDone)
		}
		// No request is waiting: the next one flies alone.
		first.Go(func() { _, _ = f.Prove(t.Context()) })
		listed <- 20
		first.Wait()
		if u.begun != 3 {
			t.Errorf("%d flights", u.begun)
		}
	})
}

// Upstream's error is the answer to all requests on the flight, and to no others.
func TestProofFailsForAllOfAFlight(t *testing.T) {
	answers := []error{nil, errUpstream, nil}
	u := &upstream{begin: func(context.Context) (uint64, error) {
		time.Sleep(time.Second)
		err := answers[0]
		answers = answers[1:]
		return 20, err
	}}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		var asked sync.WaitGroup
		ask := func(want error) {
			asked.Go(func() {
				if _, err := f.Prove(t.Context()); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		}
		ask(nil)
		synctest.Wait()
		for range 5 {
			ask(errUpstream)
		}
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond) // the second flight is in the air
		for range 5 {
			ask(nil)
		}
		asked.Wait()
		if u.begun != 3 {
			t.Errorf("%d flights", u.begun)
		}
	})
}

// A request that gives up gets its own cause, and the flight goes on for the others.
func TestProofWithoutTheCaller(t *testing.T) {
	u := &upstream{begin: func(context.Context) (uint64, error) { time.Sleep(time.Second); return 20, nil }}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		gone := errors.New("the client went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		var asked sync.WaitGroup
		asked.Go(func() {
			if _, err := f.Prove(ctx); !errors.Is(err, gone) {
				t.Errorf("%v, want %v", err, gone)
			}
		})
		synctest.Wait()
		asked.Go(func() { checkProve(t, f, nil, 2*time.Second) })
		synctest.Wait()
		cancel(gone)
		asked.Wait()
	})
}

// After two failures in a row requests had better go upstream, until a proof succeeds. Asking tries
// again.
func TestTwoFailuresSendRequestsUpstream(t *testing.T) {
	fails := true
	u := &upstream{begin: func(context.Context) (uint64, error) {
		if fails {
			return 0, errUpstream
		}
		return 20, nil
	}}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		check := func(doubtful bool, begun int) {
			t.Helper()
			if got := f.IsFailing(); got != doubtful {
				t.Errorf("doubtful: %v", got)
			}
			synctest.Wait()
			if u.begun != begun {
				t.Errorf("%d flights, want %d", u.begun, begun)
			}
		}
		check(false, 0)
		checkProve(t, f, errUpstream, 0)
		check(false, 1)
		time.Sleep(refusedInterval)
		checkProve(t, f, errUpstream, 0)
		check(true, 2) // too early to ask again
		time.Sleep(refusedInterval)
		check(true, 3)
		fails = false
		time.Sleep(refusedInterval)
		check(true, 4)
		check(false, 4)
		fails = true
		checkProve(t, f, errUpstream, 0)
		check(false, 5)
	})
}
