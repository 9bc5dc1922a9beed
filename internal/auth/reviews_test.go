package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// sizes is a review that asks how long a text is: two and more is good. It takes a second.
type sizes struct {
	*reviews[string, int]
	h     *Hasher
	asked atomic.Int32
	most  atomic.Int32 // under way at once
	fail  atomic.Bool

	mu      sync.Mutex // also held while most is raised
	sources map[source]int
}

var errSizes = errors.New("cannot say")

func newSizes(b bounds) *sizes {
	s := &sizes{h: NewHasher(), sources: map[source]int{}}
	s.reviews = newReviews(reviewsOptions[string, int]{
		bounds: b, user: func(string) string { return "" }, clock: clock.RealClock{},
	})
	var now atomic.Int32
	s.ask = func(ctx context.Context, text string) (int, error) {
		s.asked.Add(1)
		s.mu.Lock()
		s.most.Store(max(s.most.Load(), now.Add(1)))
		s.mu.Unlock()
		defer now.Add(-1)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if s.fail.Load() {
			return 0, errSizes
		}
		return len(text), nil
	}
	s.isGood = func(n int) bool { return n >= 2 }
	s.until = func(a Answer[int]) time.Time {
		if a.Err != nil {
			return a.At.Add(2 * time.Second)
		}
		return a.At.Add(10 * time.Second)
	}
	s.count = func(from source) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sources[from]++
	}
	return s
}

func (s *sizes) of(text string) Answer[int] {
	return s.answer(context.Background(), s.h.Sum(text), text)
}

func (s *sizes) check(t *testing.T, text string, want int, wantErr error, wantAsked int32) {
	t.Helper()
	if a := s.of(text); a.Value != want || !errors.Is(a.Err, wantErr) {
		t.Errorf("%q: got %d, %v, want %d, %v", text, a.Value, a.Err, want, wantErr)
	}
	if asked := s.asked.Load(); asked != wantAsked {
		t.Errorf("%q: asked %d times, want %d", text, asked, wantAsked)
	}
}

// An answer is cached for a fixed time, which begins when the review is sent.
func TestReviewsRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 10})
		s.check(t, "ab", 2, nil, 1)
		time.Sleep(8999 * time.Millisecond) // it took one second
		s.check(t, "ab", 2, nil, 1)
		time.Sleep(time.Millisecond)
		s.check(t, "ab", 2, nil, 2)
		s.fail.Store(true)
		s.check(t, "c", 0, errSizes, 3)
		s.check(t, "c", 0, errSizes, 3)
		time.Sleep(time.Second)
		s.fail.Store(false)
		s.check(t, "c", 1, nil, 4)
	})
}

// Equal questions share the review that is under way, which goes on even if the request that began
// it is canceled.
func TestReviewsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 10})
		ctx, leave := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { s.answer(ctx, s.h.Sum("abc"), "abc") })
		synctest.Wait()
		leave()
		for range 1000 {
			all.Go(func() {
				if a := s.of("abc"); a.Value != 3 || a.Err != nil {
					t.Errorf("got %d, %v", a.Value, a.Err)
				}
			})
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if a := s.answer(gone, s.h.Sum("abc"), "abc"); !errors.Is(a.Err, context.Canceled) {
			t.Errorf("a caller that left still waits: %v", a.Err)
		}
		all.Wait()
		if s.asked.Load() != 1 || s.sources[fromReview] != 1 || s.sources[fromFlight] != 1000 {
			t.Errorf("asked %d times, answers from %v", s.asked.Load(), s.sources)
		}
	})
}

// A user with many questions under way delays no other user's.
func TestReviewsOfOneUserDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 1000, underWay: 10, each: 5})
		s.user = func(text string) string { return text[:1] }
		var all sync.WaitGroup
		for i := range 70 {
			all.Go(func() { s.of(fmt.Sprint("a", i)) })
		}
		synctest.Wait()
		if n := s.asked.Load(); n != 5 {
			t.Errorf("%d of 10 reviews are of one user, want 5", n)
		}
		began := time.Now()
		if a := s.of("b"); a.Err != nil || time.Since(began) != time.Second {
			t.Errorf("another user's review took %v, %v, want 1s", time.Since(began), a.Err)
		}
		all.Wait()
	})
}

// No more reviews are under way at once than there are turns. A request that gets no turn in time
// fails with ErrBusy, which is not cached.
func TestReviewsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 1000, underWay: 10})
		quick := s.ask
		s.ask = func(ctx context.Context, text string) (int, error) {
			time.Sleep(100 * time.Millisecond)
			return quick(ctx, text)
		}
		var answered, busy atomic.Int32
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				switch a := s.of(fmt.Sprint("text ", i)); {
				case a.Err == nil:
					answered.Add(1)
				case errors.Is(a.Err, ErrBusy):
					busy.Add(1)
				}
			})
		}
		all.Wait()
		// Fourteen times ten begin within fifteen seconds; none that has begun is cut short.
		if s.most.Load() != 10 || answered.Load() != 140 || busy.Load() != 60 {
			t.Errorf("%d at once, %d answered, %d had no turn", s.most.Load(), answered.Load(), busy.Load())
		}
		asked := s.asked.Load()
		for i := range 100 {
			s.of(fmt.Sprint("text ", i))
		}
		if s.asked.Load() <= asked {
			t.Error("that there was no turn is remembered")
		}
	})
}

// A renewed answer needs no turn, replaces what is remembered, and never gives way to the answer to
// an earlier question.
func TestReviewsRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 1})
		key := s.h.Sum("x")
		var all sync.WaitGroup
		all.Go(func() { s.of("busy") })
		all.Go(func() {
			if a := s.renew(context.Background(), key, "x"); a.Value != 1 {
				t.Errorf("got %d", a.Value)
			}
		})
		time.Sleep(500 * time.Millisecond)
		all.Go(func() { // asked later, answered as something else
			if a := s.renew(context.Background(), key, "xyz"); a.Value != 3 {
				t.Errorf("got %d", a.Value)
			}
		})
		all.Wait()
		s.check(t, "x", 3, nil, 3)
		s.fail.Store(true)
		if a := s.renew(context.Background(), key, "x"); !errors.Is(a.Err, errSizes) {
			t.Errorf("got %v", a.Err)
		}
		s.check(t, "x", 3, nil, 4) // an error takes nothing back
		s.fail.Store(false)
		s.renew(context.Background(), key, "x")
		s.check(t, "x", 1, nil, 5)
	})
}

// Answers to questions that are put again are counted, too.
func TestRenewedAnswersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 1})
		key := s.h.Sum("x")
		s.renew(context.Background(), key, "x")
		s.fail.Store(true)
		s.renew(context.Background(), key, "x")
		s.local = func(Digest, string) (Answer[int], bool) { return Answer[int]{Value: 1, At: time.Now()}, true }
		s.renew(context.Background(), key, "x")
		if want := map[source]int{fromReview: 2, fromLocal: 1}; !maps.Equal(s.sources, want) {
			t.Errorf("answers from %v, want %v", s.sources, want)
		}
	})
}

// The answer to an earlier question that arrives after the answer to a later one is discarded: even
// the caller that sent the earlier question gets the later answer.
func TestReviewsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 10})
		slow := s.ask
		s.ask = func(ctx context.Context, text string) (int, error) {
			if text == "long" {
				time.Sleep(2 * time.Second)
			}
			return slow(ctx, text)
		}
		key := s.h.Sum("x")
		var first Answer[int]
		var all sync.WaitGroup
		all.Go(func() { first = s.renew(context.Background(), key, "long") })
		time.Sleep(500 * time.Millisecond)
		s.renew(context.Background(), key, "x")
		all.Wait()
		if last, ok := s.recall(key); first.Value != 1 || !ok || last.Value != 1 {
			t.Errorf("got %d, remembered %d, %v", first.Value, last.Value, ok)
		}
	})
}

// A review that panics ends with an error for each request that waits for it, too.
func TestReviewsPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSizes(bounds{remembered: 10, underWay: 1})
		s.ask = func(context.Context, string) (int, error) {
			time.Sleep(time.Second)
			panic("test")
		}
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { _ = recover() }()
			s.of("a")
		})
		synctest.Wait()
		if a := s.of("a"); !errors.Is(a.Err, errCrashed) {
			t.Errorf("got %v", a.Err)
		}
		all.Wait()
		s.ask = func(context.Context, string) (int, error) { return 5, nil }
		if a := s.of("a"); a.Value != 5 {
			t.Errorf("its turn is not free: %d, %v", a.Value, a.Err)
		}
	})
}

func TestMemory(t *testing.T) {
	h, start := NewHasher(), time.Unix(1000, 0)
	m := NewAnswerCache[int](3)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	known := func(now int) []string {
		var all []string
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if a, ok := m.Recall(h.Sum(key), at(now)); ok {
				all = append(all, fmt.Sprint(key, a.Value))
			}
		}
		return all
	}
	check := func(now int, want ...string) {
		t.Helper()
		if got := known(now); !slices.Equal(got, want) {
			t.Errorf("at %d: got %v, want %v", now, got, want)
		}
		if len(m.entries) != m.order.Len() || len(m.entries) > m.limit {
			t.Errorf("%d entries, %d in order", len(m.entries), m.order.Len())
		}
	}
	note := func(key string, value, until, now int) {
		m.Note(h.Sum(key), Answer[int]{Value: value}, at(until), at(now))
	}
	note("a", 1, 10, 0)
	note("b", 1, 11, 1)
	note("c", 1, 12, 2)
	check(2, "a1", "b1", "c1")
	note("a", 2, 13, 3) // no more than it replaces
	check(3, "a2", "b1", "c1")
	note("d", 1, 14, 4)
	check(4, "a2", "c1", "d1")
	check(12, "a2", "d1")
	note("e", 1, 5, 12) // too old already
	check(12, "a2", "d1")
	m.Forget(h.Sum("a"))
	m.Forget(h.Sum("a"))
	check(13, "d1")
	note("b", 1, 100, 50)
	check(50, "b1")
	if none := NewAnswerCache[int](0); true {
		none.Note(h.Sum("a"), Answer[int]{}, at(5), at(0))
		if _, ok := none.Recall(h.Sum("a"), at(0)); ok {
			t.Error("a memory for nothing remembers")
		}
	}
}
