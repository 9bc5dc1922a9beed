package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
			for range 500 {
				time.Sleep(time.Millisecond)
				least := revision.Add(1)
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
		checkProve(t, f, errDiffers, proofTimeout)
		time.Sleep(stateReadInterval)
		u.state = shows(0, 19, map[string]uint64{"n/a": 11})
		checkProve(t, f, ErrNotProven, 0)
		if !r.Disowned() {
			t.Error("a store that went back is taken for the same")
		}
	})
}

// The event that a quiet resource's state shows may be late on the mirror's own stream.
func TestStateOfAQuietResourceIsWaitedFor(t *testing.T) {
	u := &upstream{begin: at(25), silent: true, state: shows(0, 25, map[string]uint64{"n/a": 11})}
	proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
		checkProve(t, f, nil, arrival)
		time.Sleep(stateReadInterval)
		const late = comparison + 200*time.Millisecond
		u.begin, u.state = at(30), shows(0, 30, map[string]uint64{"n/a": 30})
		time.AfterFunc(late, func() { _ = r.Update(pod(t, "a", 30)) })
		checkProve(t, f, nil, late)
	})
}

// A store that went back is found out though history never got to what it had said: a proof by
// state hands its resourceVersion to clients, and their watches would be silent until the store is
// there again.
func TestStoreBehindAProofIsAnotherOne(t *testing.T) {
	finders := map[string]func(context.Context, *Freshness) error{
		"a proof": func(ctx context.Context, f *Freshness) error {
			_, err := f.Prove(ctx)
			return err
		},
		"a question": func(ctx context.Context, f *Freshness) error {
			_, err := f.Newest(ctx)
			return err
		},
		"a comparison": func(_ context.Context, f *Freshness) error { return f.compare() },
		"a check":      func(ctx context.Context, f *Freshness) error { return f.advance(ctx) },
	}
	for name, find := range finders {
		t.Run(name, func(t *testing.T) {
			u := &upstream{begin: at(900), silent: true, state: shows(0, 900, map[string]uint64{"n/a": 11})}
			proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
				checkProve(t, f, nil, arrival)
				time.Sleep(stateReadInterval)
				u.begin, u.state = at(500), shows(0, 500, map[string]uint64{"n/a": 11})
				if err := find(t.Context(), f); err == nil || !r.Disowned() {
					t.Fatalf("the store went back: %v", err)
				}
				_ = r.Replace(objects(t, "a=a@11"), 505)
				if _, err := r.Log().Find(900); err == nil {
					t.Error("a watch goes on from what an earlier history has promised")
				}
				time.Sleep(stateReadInterval)
				u.begin, u.state = at(506), shows(0, 506, map[string]uint64{"n/a": 11})
				if _, err := f.Prove(t.Context()); err != nil {
					t.Errorf("proof of the new history: %v", err)
				}
			})
		})
	}
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
		synctest.Wait()
		u.silent = true // as the watch has shown
		checkProve(t, f, nil, 0)
		if u.proving != 1 {
			t.Errorf("%d watches for bookmarks", u.proving)
		}
		time.Sleep(proofTimeout)
	})
}

// Requests that arrive together cost two reads of a small state at most, whatever becomes of the
// bookmarks: one at once, and one for all that are not proven when the next is due.
func TestHerdCostsTwoReadsOfState(t *testing.T) {
	for name, bookmark := range map[string]struct {
		after time.Duration
		vain  bool
	}{
		"in time": {after: 1700 * time.Millisecond}, "late": {after: proofTimeout - 100*time.Millisecond},
		"never": {after: time.Minute}, "in vain": {after: 700 * time.Millisecond, vain: true},
	} {
		t.Run(name, func(t *testing.T) {
			var revision atomic.Uint64
			revision.Store(25)
			u := &upstream{begin: func(context.Context) (uint64, error) { return revision.Load(), nil }}
			u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
				rv := revision.Load()
				if bookmark.vain {
					rv = 0
				}
				return says(bookmark.after, rv, 0)(ctx, from)
			}
			u.state = func(context.Context) (uint64, map[string]uint64, error) {
				rv := revision.Load()
				time.Sleep(100 * time.Millisecond)
				return rv, map[string]uint64{"n/a": 11}, nil
			}
			proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
				var asked sync.WaitGroup
				for range 500 {
					time.Sleep(2800 * time.Microsecond) // 1.4 s, less than between two reads
					least := revision.Add(1)
					asked.Go(func() {
						began := time.Now()
						s, err := f.Prove(t.Context())
						if err != nil || max(s.RV, s.Reached) < least {
							t.Errorf("%+v, want a state of %d or later: %v", s, least, err)
						}
						if took := time.Since(began); took > arrival+comparisonInterval+100*time.Millisecond {
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

// A read of the state that fails is repeated for all that wait, also for those that came while it
// was under way and whose check needed none of its own.
func TestComparisonInVainIsRepeated(t *testing.T) {
	for _, long := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} {
		u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0)}
		reads := 0
		u.state = func(context.Context) (uint64, map[string]uint64, error) {
			if reads++; reads == 1 {
				time.Sleep(long)
				return 0, nil, errUpstream
			}
			return 26, map[string]uint64{"n/a": 11}, nil
		}
		proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
			var first sync.WaitGroup
			first.Go(func() { checkProve(t, f, nil, arrival+long+checkInterval) })
			time.Sleep(75 * time.Millisecond)
			checkProve(t, f, nil, arrival+long+checkInterval-75*time.Millisecond)
			first.Wait()
			if reads != 2 {
				t.Errorf("%d reads of state", reads)
			}
		})
	}
}

// A read of the state that upstream refuses with Retry-After is repeated no sooner.
func TestRetryAfterOfAComparisonIsKept(t *testing.T) {
	u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0)}
	const after = 2 * time.Second
	var refused time.Time
	u.state = func(context.Context) (uint64, map[string]uint64, error) {
		if refused.IsZero() {
			refused = time.Now()
			return 0, nil, apierrors.NewTooManyRequests("too many requests", int(after/time.Second))
		}
		if early := after - time.Since(refused); early > 0 {
			t.Errorf("a read of the state is %v early", early)
		}
		return 26, map[string]uint64{"n/a": 11}, nil
	}
	proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
		checkProve(t, f, nil, arrival+after)
		if u.compared != 2 {
			t.Errorf("%d reads of state", u.compared)
		}
	})
}

// A Retry-After of an hour is not kept that long.
func TestLongRetryAfterOfAComparisonIsBounded(t *testing.T) {
	for _, silent := range []bool{false, true} {
		u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0), silent: silent}
		reads := 0
		u.state = func(context.Context) (uint64, map[string]uint64, error) {
			if reads++; reads == 1 {
				return 0, nil, apierrors.NewTooManyRequests("maintenance", 3600)
			}
			return 26, map[string]uint64{"n/a": 24}, nil
		}
		proof(t, u, func(t *testing.T, r *Resource, f *Freshness) {
			checkProve(t, f, ErrNotProven, proofTimeout)
			time.Sleep(maxRefusalPause)
			_ = r.Update(pod(t, "a", 24))
			checkProve(t, f, nil, arrival)
		})
	}
}

// A read of the state that hangs is overtaken by another one, for those that wait for it, too.
func TestComparisonThatHangsIsOvertaken(t *testing.T) {
	u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0)}
	var reads atomic.Int32
	u.state = func(ctx context.Context) (uint64, map[string]uint64, error) {
		if reads.Add(1) == 1 {
			<-ctx.Done()
			return 0, nil, ctx.Err()
		}
		return 26, map[string]uint64{"n/a": 11}, nil
	}
	proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
		checkProve(t, f, nil, arrival+comparisonInterval)
		if reads.Load() != 2 {
			t.Errorf("%d reads of state", reads.Load())
		}
	})
}

// A large state is not read while each bookmark comes in time, however long requests keep coming.
func TestLargeStateIsNotReadWhereBookmarksCome(t *testing.T) {
	u := &upstream{begin: at(25)}
	synctest.Test(t, func(t *testing.T) {
		r := newPods(unlimited)
		var state []string
		for i := range smallState + 1 {
			state = append(state, fmt.Sprintf("p%04d=x@%d", i, 11))
		}
		_ = r.Replace(objects(t, state...), 20)
		var revision atomic.Uint64
		revision.Store(25)
		u.begin = func(context.Context) (uint64, error) { return revision.Load(), nil }
		u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
			return says(time.Second, revision.Load(), 0)(ctx, from)
		}
		f := NewFreshness(r, u)
		var asked sync.WaitGroup
		for range 20 {
			revision.Add(1)
			asked.Go(func() {
				if _, err := f.Prove(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(300 * time.Millisecond)
		}
		asked.Wait()
		if u.compared > 0 {
			t.Errorf("%d reads of state", u.compared)
		}
		time.Sleep(proofTimeout)
	})
}

// Where no bookmark comes, a read of the state that fails is repeated once a second.
func TestRefusedStateIsAskedForSeldom(t *testing.T) {
	u := &upstream{begin: at(26), silent: true} // refused at once
	proof(t, u, func(t *testing.T, _ *Resource, f *Freshness) {
		checkProve(t, f, errRefused, proofTimeout)
		if u.compared != 3 {
			t.Errorf("%d reads of state in %v", u.compared, proofTimeout)
		}
	})
}
