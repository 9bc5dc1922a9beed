package freshness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/cache"
)

// A store that went back is found out though history never got to what it had said: a proof by
// state hands its resourceVersion to clients, and their watches would be silent until the store is
// there again.
func TestStoreBehindAProofIsAnotherOne(t *testing.T) {
	finders := map[string]func(context.Context, *Prover) error{
		"a proof": func(ctx context.Context, f *Prover) error {
			_, err := f.Prove(ctx)
			return err
		},
		"a question": func(ctx context.Context, f *Prover) error {
			_, err := f.UpstreamRV(ctx)
			return err
		},
		"a comparison": func(ctx context.Context, f *Prover) error { return f.compareState(ctx) },
	}
	for name, find := range finders {
		t.Run(name, func(t *testing.T) {
			u := &upstream{begin: at(900), prove: says(proofTimeout, 0, 0), state: shows(0, 900, map[string]uint64{"n/a": 11})}
			proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
				checkProve(t, f, nil, streamWaitTimeout)
				time.Sleep(comparisonInterval)
				synctest.Wait()
				u.begin, u.state = at(500), shows(0, 500, map[string]uint64{"n/a": 11})
				if err := find(t.Context(), f); err == nil || !r.IsHistoryReset() {
					t.Fatalf("the store went back: %v", err)
				}
				_ = r.Replace(objects(t, "a=a@11"), 505)
				if _, err := r.Log().Find(900); err == nil {
					t.Error("a watch goes on from what an earlier history has promised")
				}
				time.Sleep(comparisonInterval)
				synctest.Wait()
				u.begin, u.state = at(506), shows(0, 506, map[string]uint64{"n/a": 11})
				if _, err := f.Prove(t.Context()); err != nil {
					t.Errorf("proof of the new history: %v", err)
				}
			})
		})
	}
}

// Requests that arrive together cost two reads of a small state at most, whatever becomes of the
// bookmarks: one at once, and one for all that are not proven when the next is due.
func TestHerdCostsTwoReadsOfState(t *testing.T) {
	for name, bookmark := range map[string]struct {
		after time.Duration
		vain  bool
	}{
		"in time": {after: 1700 * time.Millisecond}, "late": {after: proofTimeout - 100*time.Millisecond},
		"never": {after: time.Minute}, "unsuccessful": {after: 700 * time.Millisecond, vain: true},
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
			proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
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
						if took := time.Since(began); took > streamWaitTimeout+comparisonInterval+100*time.Millisecond {
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
// was under way.
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
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		var first sync.WaitGroup
		first.Go(func() { checkProve(t, f, nil, streamWaitTimeout+comparisonInterval) })
		time.Sleep(75 * time.Millisecond)
		checkProve(t, f, nil, streamWaitTimeout+comparisonInterval-75*time.Millisecond)
		first.Wait()
		if reads != 2 {
			t.Errorf("%d reads of state", reads)
		}
	})
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
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		checkProve(t, f, nil, streamWaitTimeout+after)
		if u.compared != 2 {
			t.Errorf("%d reads of state", u.compared)
		}
	})
}

// A Retry-After of an hour is not kept that long.
func TestLongRetryAfterOfAComparisonIsBounded(t *testing.T) {
	u := &upstream{begin: at(26), prove: says(time.Minute, 0, 0)}
	reads := 0
	u.state = func(context.Context) (uint64, map[string]uint64, error) {
		if reads++; reads == 1 {
			return 0, nil, apierrors.NewTooManyRequests("maintenance", 3600)
		}
		return 26, map[string]uint64{"n/a": 24}, nil
	}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		checkProve(t, f, ErrNotProven, unproven)
		time.Sleep(maxRefusedInterval)
		_ = r.Update(pod(t, "a", 24))
		checkProve(t, f, nil, streamWaitTimeout)
	})
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
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		checkProve(t, f, nil, streamWaitTimeout+comparisonInterval)
		if reads.Load() != 2 {
			t.Errorf("%d reads of state", reads.Load())
		}
	})
}

// A large state is never read, whether the bookmark comes in time, late, or not at all: the API
// server that is slow does not get the dearer question.
func TestLargeStateIsNeverRead(t *testing.T) {
	for name, bookmark := range map[string]func(context.Context, uint64) (uint64, uint64, error){
		"in time": says(time.Second, 25, 0), "late": says(time.Minute, 25, 0), "none": says(proofTimeout, 0, 0),
		"of another API server": says(time.Second, 24, 0),
	} {
		t.Run(name, func(t *testing.T) {
			u := &upstream{begin: at(25), prove: bookmark, state: shows(0, 25, nil)}
			synctest.Test(t, func(t *testing.T) {
				r := newPods(unlimited)
				var state []string
				for i := range comparedObjectsLimit + 1 {
					state = append(state, fmt.Sprintf("p%04d=x@%d", i, 11))
				}
				_ = r.Replace(objects(t, state...), 20)
				f := New(r, u)
				for range 3 {
					if _, err := f.Prove(t.Context()); (err == nil) != (name == "in time") {
						t.Errorf("proof: %v", err)
					}
				}
				if u.compared > 0 {
					t.Errorf("%d reads of state", u.compared)
				}
				time.Sleep(proofTimeout)
			})
		})
	}
}

// A question that upstream refuses is not sent again for a while, however often clients ask: they
// get the same refusal. From its beginning on, the pause is a tenth of a second, or Retry-After.
func TestRefusedQuestionIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an error":                     {errUpstream, refusedInterval},
		"too many requests":            {apierrors.NewTooManyRequests("busy", 2), 2 * time.Second},
		"a Retry-After of an hour":     {apierrors.NewTooManyRequests("maintenance", 3600), maxRefusedInterval},
		"an answer after a long while": {errUpstream, 0},
	} {
		t.Run(name, func(t *testing.T) {
			took := 3 * time.Millisecond
			if c.want == 0 {
				took = time.Second
			}
			u := &upstream{begin: func(context.Context) (uint64, error) {
				time.Sleep(took)
				return 0, c.err
			}}
			proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
				refused := func() {
					t.Helper()
					if _, err := f.Prove(t.Context()); err != c.err {
						t.Errorf("proof: %v", err)
					}
				}
				refused()
				if c.want > 0 {
					time.Sleep(c.want - took - 1)
					refused()
					if _, err := f.TryProve(t.Context(), 1000); err != ErrUpstreamFaster {
						t.Errorf("a LIST waits: %v", err)
					}
					if u.begun != 1 {
						t.Fatalf("%d questions within %v", u.begun, c.want)
					}
					time.Sleep(time.Nanosecond)
				}
				refused()
				if u.begun != 2 {
					t.Errorf("%d questions after %v", u.begun, c.want)
				}
			})
		})
	}
}

// A refusal ends with the next answer: those that waited meanwhile get that.
func TestAnswerEndsARefusal(t *testing.T) {
	var refused atomic.Bool
	refused.Store(true)
	u := &upstream{begin: func(context.Context) (uint64, error) {
		time.Sleep(time.Millisecond)
		if refused.Load() {
			return 0, apierrors.NewTooManyRequests("busy", 1)
		}
		return 20, nil
	}}
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		for round := range 3 {
			refused.Store(true)
			if _, err := f.Prove(t.Context()); err == nil {
				t.Fatal("a refusal is a proof")
			}
			refused.Store(false)
			var asking sync.WaitGroup
			for range 100 {
				asking.Go(func() {
					s, err := f.Prove(t.Context())
					if (s == nil) == (err == nil) {
						t.Errorf("round %d: state %v, %v", round, s, err)
					}
				})
			}
			asking.Wait()
			time.Sleep(time.Second)
			checkProve(t, f, nil, time.Millisecond)
		}
	})
}
