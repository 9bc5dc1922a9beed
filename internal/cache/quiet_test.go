package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Where no bookmark comes for a quiet resource, the proof is upstream's state. Two reads of it
// answer all requests that arrive within a second; none answers a request that came after it began.
func TestQuietResourceIsProvenByFewReadsOfState(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(proofTimeout, 0, 0), silent: true}
	proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
		var revision atomic.Uint64
		revision.Store(25)
		u.begin = func(context.Context) (uint64, error) { return revision.Load(), nil }
		u.state = func(context.Context) (uint64, map[string]uint64, error) {
			rv := revision.Load()
			time.Sleep(10 * time.Millisecond)
			return rv, map[string]uint64{"n/a": 11}, nil
		}
		herd := func() {
			var asked sync.WaitGroup
			for i := range 500 {
				time.Sleep(time.Millisecond)
				least := uint64(26 + i)
				revision.Store(least)
				asked.Go(func() {
					began := time.Now()
					s, err := f.Prove(t.Context())
					if err != nil || s.RV < least {
						t.Errorf("%+v, want a state of %d or later: %v", s, least, err)
					}
					if took := time.Since(began); took > stateReadInterval+2*arrival+20*time.Millisecond {
						t.Errorf("a proof took %v", took)
					}
				})
			}
			asked.Wait()
		}
		herd()
		if u.compared > 2 || u.begun > 1 || u.proving != 0 {
			t.Errorf("%d reads of state, %d of R and %d watches for 500 requests", u.compared, u.begun, u.proving)
		}
		time.Sleep(stateReadInterval)
		begun, compared := u.begun, u.compared
		herd()
		if u.compared > compared+2 || u.begun != begun || u.proving != 0 {
			t.Errorf("%d reads of state, %d of R and %d watches for 500 more", u.compared-compared, u.begun-begun, u.proving)
		}
		if r.Through() != 20 {
			t.Errorf("history moved to %d", r.Through())
		}
	})
}

// An event ends the quiet: the next one may be the proof again.
func TestEventEndsTheQuiet(t *testing.T) {
	u := &upstream{begin: at(25), silent: true, state: shows(0, 25, map[string]uint64{"n/a": 11})}
	proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
		checkProve(t, f, nil, arrival)
		time.Sleep(stateReadInterval)
		checkProve(t, f, nil, 0) // by state at once
		if u.begun != 1 || u.compared != 2 {
			t.Fatalf("%d reads of R and %d of state", u.begun, u.compared)
		}
		if _, err := f.TryProve(t.Context(), 1000); err != ErrUpstreamFaster {
			t.Errorf("a LIST waits for another: %v", err)
		}
		_ = r.Add(pod(t, "b", 24))
		u.begin = at(27)
		time.Sleep(stateReadInterval)
		time.AfterFunc(10*time.Millisecond, func() { _ = r.Update(pod(t, "b", 27)) })
		checkProve(t, f, nil, 10*time.Millisecond)
		if u.begun != 2 || u.compared != 2 {
			t.Errorf("%d reads of R and %d of state", u.begun, u.compared)
		}
	})
}

// What differs is not proven by state either, and a store that went back is disowned.
func TestStateOfAQuietResourceIsNotTrustedBlindly(t *testing.T) {
	u := &upstream{begin: at(25), silent: true, state: shows(0, 25, map[string]uint64{"n/a": 11})}
	proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
		checkProve(t, f, nil, arrival)
		time.Sleep(stateReadInterval)
		u.state = shows(0, 26, map[string]uint64{"n/a": 25})
		checkProve(t, f, errDiffers, comparison)
		time.Sleep(stateReadInterval)
		u.state = shows(0, 19, map[string]uint64{"n/a": 11})
		checkProve(t, f, ErrNotProven, 0)
		if !r.Disowned() {
			t.Error("a store that went back is taken for the same")
		}
	})
}

// Before it is known that no bookmark comes, a large state is compared once it should have come: a
// proof that cannot come is waited for no longer.
func TestBookmarkThatDoesNotComeIsWaitedForOnce(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(proofTimeout-100*time.Millisecond, 0, 0)}
	synctest.Test(t, func(t *testing.T) {
		r, versions := newPods(unlimited), map[string]uint64{}
		var state []string
		for i := range smallState + 1 {
			name := fmt.Sprintf("p%04d", i)
			state, versions["n/"+name] = append(state, fmt.Sprintf("%s=x@%d", name, 11)), 11
		}
		_ = r.Replace(objects(t, state...), 20)
		u.state = shows(0, 26, versions)
		f := NewFreshness(r, u)
		checkProve(t, f, nil, arrival+bookmarkWait)
		time.Sleep(proofTimeout)
		u.silent = true // as the watch has shown
		checkProve(t, f, nil, 0)
		if u.proving != 1 {
			t.Errorf("%d watches for bookmarks", u.proving)
		}
		time.Sleep(proofTimeout)
	})
}

// Requests that arrive together cost two reads of a small state at most: one at once, and one for
// all whose bookmark is late.
func TestHerdCostsTwoReadsOfState(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"in time": 1700 * time.Millisecond, "late": proofTimeout - 100*time.Millisecond, "never": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			var revision atomic.Uint64
			revision.Store(25)
			u := &upstream{begin: func(context.Context) (uint64, error) { return revision.Load(), nil }}
			u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
				return says(late, revision.Load(), 0)(ctx, from)
			}
			u.state = func(context.Context) (uint64, map[string]uint64, error) {
				rv := revision.Load()
				time.Sleep(100 * time.Millisecond)
				return rv, map[string]uint64{"n/a": 11}, nil
			}
			proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
				var asked sync.WaitGroup
				for range 500 {
					time.Sleep(3700 * time.Microsecond) // 1.85 s, less than one is waited for
					least := revision.Add(1)
					asked.Go(func() {
						began := time.Now()
						s, err := f.Prove(t.Context())
						if err != nil || max(s.RV, s.Reached) < least {
							t.Errorf("%+v, want a state of %d or later: %v", s, least, err)
						}
						if took := time.Since(began); took > checkInterval+bookmarkWait+200*time.Millisecond {
							t.Errorf("a proof took %v", took)
						}
					})
				}
				asked.Wait()
				if u.compared > 2 {
					t.Errorf("%d reads of state for 500 requests", u.compared)
				}
			})
		})
	}
}

// A read of the state that fails does not stand in for those of other checks.
func TestComparisonInVainIsRepeated(t *testing.T) {
	u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0)}
	reads := 0
	u.state = func(context.Context) (uint64, map[string]uint64, error) {
		if reads++; reads == 1 {
			time.Sleep(100 * time.Millisecond)
			return 0, nil, errUpstream
		}
		return 26, map[string]uint64{"n/a": 11}, nil
	}
	proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
		var first sync.WaitGroup
		first.Go(func() { checkProve(t, f, nil, arrival+checkInterval) })
		time.Sleep(arrival + 50*time.Millisecond)
		checkProve(t, f, nil, checkInterval-50*time.Millisecond)
		first.Wait()
	})
}
