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

var (
	errUpstream = errors.New("upstream: no etcd")
	errRefused  = errors.New("upstream: no watch-lists")
)

// upstream is a Prober whose answers a test scripts. Every field is of what it does, or did.
type upstream struct {
	begin func(ctx context.Context) (uint64, error)                     // R
	prove func(ctx context.Context, from uint64) (b, e uint64, _ error) // the bookmark and the last event
	state func(ctx context.Context) (uint64, map[string]uint64, error)  // nil: refused

	mu                                          sync.Mutex
	begun, proving, proved, connected, compared int
}

func (u *upstream) count(n *int, by int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*n += by
}

func (u *upstream) Begin(ctx context.Context) (uint64, Proof, error) {
	u.count(&u.begun, 1)
	rv, err := u.begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	u.count(&u.connected, 1)
	return rv, u, nil
}

func (u *upstream) Prove(ctx context.Context, from uint64) (uint64, uint64, error) {
	u.count(&u.proving, 1)
	defer u.count(&u.proved, 1)
	return u.prove(ctx, from)
}

func (u *upstream) State(ctx context.Context) (uint64, map[string]uint64, error) {
	u.count(&u.compared, 1)
	if u.state == nil {
		return 0, nil, errRefused
	}
	return u.state(ctx)
}

func (u *upstream) Close() { u.count(&u.connected, -1) }

// at is an upstream that is at rv.
func at(rv uint64) func(context.Context) (uint64, error) {
	return func(context.Context) (uint64, error) { return rv, nil }
}

// unproven is how long a proof takes without a bookmark: the watch for one ends after 3 s.
const unproven = streamWaitTimeout + proofTimeout

// says is a watch that shows a bookmark after a while, unless it has ended.
func says(after time.Duration, bookmark, lastEvent uint64) func(context.Context, uint64) (uint64, uint64, error) {
	return func(ctx context.Context, _ uint64) (uint64, uint64, error) {
		select {
		case <-time.After(after):
			return bookmark, lastEvent, nil
		case <-time.After(proofTimeout):
			return 0, 0, nil
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// proof runs a test in a bubble with time of its own: the resource is complete through 20.
func proof(t *testing.T, u *upstream, test func(t *testing.T, r *cache.Resource, f *Prover)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newPods(unlimited)
		_ = r.Replace(objects(t, "a=a@11"), 20)
		test(t, r, New(r, u))
		time.Sleep(bookmarkTimeout) // checks go on without the requests that wanted them
		synctest.Wait()
		if u.connected != 0 || u.proving != u.proved {
			t.Errorf("%d connections and %d watches are left open", u.connected, u.proving-u.proved)
		}
	})
}

// checkProve asks for a proof and checks the answer and when it came.
func checkProve(t *testing.T, f *Prover, want error, after time.Duration) {
	t.Helper()
	start := time.Now()
	if _, err := f.Prove(t.Context()); !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("proof: %v, want %v", err, want)
	}
	if took := time.Since(start); took != after {
		t.Errorf("the proof took %v, want %v", took, after)
	}
}

func TestProofOfWhatIsThere(t *testing.T) {
	u := &upstream{begin: at(20)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		checkProve(t, f, nil, 0)
		if u.begun != 1 || u.proving != 0 {
			t.Errorf("%d lists and %d watches", u.begun, u.proving)
		}
	})
}

// On a busy resource the mirror's own stream is the proof, and upstream is not asked for more than
// R.
func TestProofByTheMirror(t *testing.T) {
	u := &upstream{begin: at(25)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(10*time.Millisecond, func() { _ = r.Add(pod(t, "b", 24)) })
		time.AfterFunc(15*time.Millisecond, func() { _ = r.Add(pod(t, "c", 26)) })
		checkProve(t, f, nil, 15*time.Millisecond)
		if u.proving != 0 {
			t.Errorf("%d watches", u.proving)
		}
	})
}

// A quiet resource: a bookmark without events is progress.
func TestProofMovesProgress(t *testing.T) {
	u := &upstream{begin: at(25)}
	u.prove = func(ctx context.Context, from uint64) (uint64, uint64, error) {
		if from != 20 {
			t.Errorf("the watch began at %d", from)
		}
		return says(time.Second, 27, 0)(ctx, from)
	}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		start := r.Snapshot()
		checkProve(t, f, nil, time.Second+streamWaitTimeout)
		checkState(t, r, 27, "a=a@11")
		if got := logFrom(t, r.Log(), start.Next); got != "progress@27" {
			t.Errorf("log %s", got)
		}
	})
}

// Events that the watch saw are not applied: the mirror delivers them, and only then the bookmark
// is true.
func TestProofWaitsForTheMirrorsEvents(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(time.Second, 27, 24)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		start := r.Snapshot()
		time.AfterFunc(1500*time.Millisecond, func() {
			if r.CompleteRV() != 20 {
				t.Errorf("through %d before the mirror's event", r.CompleteRV())
			}
			_ = r.Add(pod(t, "b", 22))
		})
		time.AfterFunc(2*time.Second, func() { _ = r.Update(pod(t, "b", 24)) })
		checkProve(t, f, nil, 2*time.Second)
		checkState(t, r, 27, "a=a@11 b=b@24")
		if got := logFrom(t, r.Log(), start.Next); got != "added@22 modified@24 progress@27" {
			t.Errorf("log %s", got)
		}
	})
}

// The mirror may overtake the watch, whose connection is then given up.
func TestProofByTheMirrorDuringTheWatch(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(time.Minute, 0, 0)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(time.Second, func() { _ = r.Bookmark(r.BookmarkTemplate(), 25) })
		checkProve(t, f, nil, time.Second)
		synctest.Wait() // the check goes on for a moment
		if u.proving != 1 {
			t.Errorf("%d watches", u.proving)
		}
	})
}

// A failed watch does not matter if the mirror gets there.
func TestProofByTheMirrorAfterTheWatchFailed(t *testing.T) {
	u := &upstream{begin: at(25), prove: func(context.Context, uint64) (uint64, uint64, error) {
		return 0, 0, errUpstream
	}}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(time.Second, func() { _ = r.Add(pod(t, "b", 25)) })
		checkProve(t, f, nil, time.Second)
	})
}

func TestAStateThatIsNotProvenIsNotServed(t *testing.T) {
	f := func(name string, u *upstream, after time.Duration, want ...error) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
				start := time.Now()
				_, err := f.Prove(t.Context())
				for _, w := range append(want, ErrNotProven) {
					if !errors.Is(err, w) {
						t.Errorf("%v is not %v", err, w)
					}
				}
				if took := time.Since(start); took != after {
					t.Errorf("it took %v, want %v", took, after)
				}
				if r.CompleteRV() > 25 {
					t.Errorf("through %d", r.CompleteRV())
				}
			})
		})
	}
	// Another API server than the one that said R, and behind it.
	f("bookmark below R", &upstream{begin: at(26), prove: says(time.Second, 25, 0)}, proofTimeout)
	f("no bookmark", &upstream{begin: at(26), prove: says(time.Minute, 27, 0)}, unproven)
	f("the mirror is stuck", &upstream{begin: at(26), prove: says(time.Second, 27, 24)}, unproven)
	f("the watch failed", &upstream{begin: at(26), prove: func(context.Context, uint64) (uint64, uint64, error) {
		return 0, 0, errUpstream
	}}, proofTimeout, errUpstream)
	f("no answer", &upstream{begin: func(ctx context.Context) (uint64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}, 2*proofTimeout)
}

// While a slow upstream owes a bookmark, the proof lasts: it would get the more expensive question
// instead. The connection of R is that of the bookmark.
func TestLateBookmarkIsWaitedFor(t *testing.T) {
	u := &upstream{begin: func(context.Context) (uint64, error) { time.Sleep(2 * time.Second); return 25, nil }}
	u.prove = func(context.Context, uint64) (uint64, uint64, error) {
		time.Sleep(4500 * time.Millisecond)
		return 27, 0, nil
	}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		checkProve(t, f, nil, 2*time.Second+streamWaitTimeout+4500*time.Millisecond)
		checkState(t, r, 27, "a=a@11")
		if u.begun != 1 || u.proving != 1 {
			t.Errorf("%d lists and %d watches", u.begun, u.proving)
		}
	})
}

// Events of the mirror may come as late as the bookmark behind them.
func TestLateEventsAreWaitedFor(t *testing.T) {
	u := &upstream{begin: at(25)}
	u.prove = func(context.Context, uint64) (uint64, uint64, error) { time.Sleep(4 * time.Second); return 27, 24, nil }
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(4200*time.Millisecond, func() { _ = r.Add(pod(t, "b", 24)) })
		checkProve(t, f, nil, 4200*time.Millisecond)
	})
}

// A question without an answer is sent once more.
func TestSilentQuestionIsRepeated(t *testing.T) {
	u := &upstream{}
	u.begin = func(ctx context.Context) (uint64, error) {
		if u.begun == 1 {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 20, nil
	}
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		checkProve(t, f, nil, proofTimeout)
		if u.begun != 2 || f.IsFailing() {
			t.Errorf("%d questions", u.begun)
		}
	})
}

// However many proofs wait for the next watch for a bookmark, they keep one connection for it.
func TestOneConnectionWaitsForABookmark(t *testing.T) {
	var rv uint64 = 24
	u := &upstream{prove: says(time.Second, 100, 0)}
	u.begin = func(context.Context) (uint64, error) { rv++; return rv, nil }
	proof(t, u, func(t *testing.T, _ *cache.Resource, f *Prover) {
		var asked sync.WaitGroup
		for range 50 {
			asked.Go(func() {
				if _, err := f.Prove(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(bookmarkInterval / 2) // half of them have come since the first watch began
		synctest.Wait()
		u.mu.Lock()
		if u.connected != 2 || u.proving != 1 { // one waits for the next watch
			t.Errorf("%d connections and %d watches", u.connected, u.proving)
		}
		u.mu.Unlock()
		asked.Wait()
	})
}

// Proof of a past that is no longer ours proves nothing.
func TestProofAcrossVoid(t *testing.T) {
	u := &upstream{begin: at(25), prove: says(time.Second, 27, 0)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		time.AfterFunc(500*time.Millisecond, func() { _ = r.Replace(nil, 15) })
		checkProve(t, f, ErrNotProven, proofTimeout)
		checkState(t, r, 15, "")
	})
}

// Upstream below us is another history that the mirror does not know of yet.
func TestNoProofByAnotherPast(t *testing.T) {
	u := &upstream{begin: at(19)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		checkProve(t, f, ErrNotProven, 0)
	})
}

// A resource that was never listed is not proven, however low R is.
func TestNoProofBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPods(unlimited)
		f := New(r, &upstream{begin: at(0), prove: says(time.Second, 27, 0)})
		checkProve(t, f, ErrNotProven, proofTimeout)
	})
}

// An upstream that was behind a resourceVersion that it had promised has another history: when it
// reaches the same resourceVersion again, that proves nothing until its state was listed. Whatever
// resourceVersion that has, no reader goes on from before.
func TestProofOfRewrittenHistory(t *testing.T) {
	u := &upstream{begin: at(19)}
	proof(t, u, func(t *testing.T, r *cache.Resource, f *Prover) {
		generation, position := r.Generation(), r.Snapshot().Next
		checkProve(t, f, ErrNotProven, 0)
		time.Sleep(refusedInterval)
		u.begin = at(20)
		checkProve(t, f, ErrNotProven, 0)
		time.Sleep(refusedInterval)
		_ = r.Replace(objects(t, "a=a@11", "b=b@22"), 25)
		if r.Generation() == generation || position >= r.Log().Head() {
			t.Errorf("generation %d, head %d: history goes on", r.Generation(), r.Log().Head())
		}
		checkExpired(t, r.Log(), 20, 25)
		u.begin = at(25)
		checkProve(t, f, nil, 0)
	})
}
