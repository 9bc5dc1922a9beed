package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"spillway/internal/object"
)

// checkFind looks for the position of rv. Positive want: that position; otherwise expired, with the
// oldest at -want.
func checkFind(t *testing.T, l *Log, rv uint64, want int64) {
	t.Helper()
	pos, err := l.Find(rv)
	if want > 0 {
		if err != nil || pos != uint64(want) {
			t.Errorf("Find(%d) = %d, %v, want %d", rv, pos, err, want)
		}
		return
	}
	var expired *ExpiredError
	if !errors.As(err, &expired) || expired.RequestedRV != rv || expired.OldestRV != uint64(-want) {
		t.Errorf("Find(%d) = %d, %v, want expired with %d", rv, pos, err, -want)
	}
}

func TestFindYieldsThePositionOfAVersion(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace([]*object.Object{pod(t, "a", 7)}, 10)
	start := int64(r.Snapshot().Next)
	l := r.Log()
	checkFind(t, l, 0, -10)
	checkFind(t, l, 9, -10)
	checkFind(t, l, 10, start)
	checkFind(t, l, 11, start) // from the future: it waits at the head (W-106)
	_ = r.Add(pod(t, "b", 12))
	_ = r.Update(pod(t, "a", 15))
	r.Progress(20, r.Generation())
	_ = r.Delete(pod(t, "b", 25))
	checkFind(t, l, 9, -10)
	checkFind(t, l, 10, start)
	checkFind(t, l, 11, start)
	checkFind(t, l, 12, start+1)
	checkFind(t, l, 14, start+1)
	checkFind(t, l, 15, start+2)
	checkFind(t, l, 19, start+2)
	checkFind(t, l, 20, start+3)
	checkFind(t, l, 24, start+3)
	checkFind(t, l, 25, start+4)
	checkFind(t, l, 1<<63, start+4)
	if l.Floor() != 10 {
		t.Errorf("floor %d", l.Floor())
	}
	err := &ExpiredError{RequestedRV: 1, OldestRV: 300}
	if err.Error() != "too old resource version: 1 (300)" {
		t.Errorf("%v is not upstream's message", err)
	}
}

// script drives a resource with a clock of its own.
type script struct {
	*Resource
	now time.Time
	rv  uint64
}

func newScript(limits HistoryLimits) *script {
	s := &script{now: time.Unix(1e9, 0), rv: 10}
	s.Resource = New(pods, limits, func() time.Time { return s.now })
	_ = s.Replace(nil, s.rv)
	return s
}

// add creates an object that counts exactly 1000 bytes of history.
func (s *script) add(t *testing.T, after time.Duration) {
	t.Helper()
	s.now = s.now.Add(after)
	s.rv++
	base := pod(t, fmt.Sprintf("p%06d", s.rv), s.rv)
	const overhead = 160
	o := pod(t, base.Name(), s.rv, base.Name(), fmt.Sprintf("%0*d", 1000-overhead-base.Size(), 0))
	_ = s.Add(o)
}

func (s *script) checkKept(t *testing.T, entries, floor uint64) {
	t.Helper()
	got, since := s.Log().Span()
	if got != entries || s.Log().Floor() != floor {
		t.Errorf("at %d: %d entries since %v with floor %d, want %d entries and floor %d", s.rv, got, since, s.Log().Floor(),
			entries, floor)
	}
	if pos, err := s.Log().Find(floor); err != nil || pos != s.Log().Head()-entries {
		t.Errorf("Find(%d) = %d, %v", floor, pos, err)
	}
	if floor > 10 {
		checkFind(t, s.Log(), floor-1, -int64(floor))
	}
}

// History keeps what is young as long as the budget allows it, and half the budget of what is old.
func TestTrimKeepsYoungHistoryWithinTheBudget(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 8000, HistoryMinAge: time.Minute})
	s.checkKept(t, 0, 10)
	for range 8 {
		s.add(t, time.Second)
	}
	s.checkKept(t, 8, 10)
	s.add(t, time.Second) // the budget counts more than the age
	s.checkKept(t, 8, 11)
	if _, ok := s.Log().EntryAt(s.Log().Head() - 9); ok {
		t.Error("a position below the floor is still there")
	}
	s.add(t, 55*time.Second) // 12..14 are a minute old, and there is more than half the budget
	s.checkKept(t, 6, 14)
	s.add(t, 2*time.Second)
	s.checkKept(t, 5, 16)
	s.add(t, time.Hour)
	s.checkKept(t, 4, 18)
	if _, since := s.Log().Span(); !since.Equal(s.now.Add(-time.Hour - 57*time.Second)) {
		t.Errorf("history since %v, now is %v", since, s.now)
	}
	s.now = s.now.Add(time.Hour)
	s.rv += 10
	s.Progress(s.rv, s.Generation())
	s.checkKept(t, 4, 19)
}

// A budget smaller than the newest event leaves no history, and readers start from the present.
func TestTrimLeavesNothing(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 999, HistoryMinAge: time.Minute})
	s.add(t, 0)
	s.checkKept(t, 0, 11)
	s.add(t, 0)
	s.checkKept(t, 0, 12)
	if got, since := s.Log().Span(); got != 0 || !since.IsZero() {
		t.Errorf("%d entries since %v", got, since)
	}
	checkState(t, s.Resource, 12, "p000011=p000011@11 p000012=p000012@12")
}

// A seam is trimmed whole: its later half alone would be a lie.
func TestTrimTakesSeamsWhole(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 10000, HistoryMinAge: 0})
	s.add(t, 0) // 11
	s.add(t, 0) // 12
	first := s.Log().Head() - 2
	var list []*object.Object
	for _, rv := range []uint64{12, 20, 21, 22} {
		o, ok := s.Snapshot().Get(fmt.Sprintf("n/p%06d", rv))
		if !ok {
			o = pod(t, fmt.Sprintf("p%06d", rv), rv)
		}
		list = append(list, o)
	}
	_ = s.Replace(list, 30)
	want := "added-p000011@11 added-p000012@12 deleted-p000011@12/deletion added-p000020@20/change " +
		"added-p000021@21/change added-p000022@22/change progress@30/end"
	if got := logFrom(t, s.Log(), first); got != want {
		t.Fatalf("log %s\nwant %s", got, want)
	}
	s.rv = 30
	for s.Log().Floor() < 30 {
		floor := s.Log().Floor()
		s.add(t, 0)
		if f := s.Log().Floor(); f != floor && f != 11 && f != 12 && f < 30 {
			t.Fatalf("the floor is %d: inside the seam", f)
		}
		if pos, err := s.Log().Find(s.Log().Floor()); err != nil {
			t.Fatal(err)
		} else if e, ok := s.Log().EntryAt(pos); !ok || e.Seam != NoSeam && e.Seam != SeamDeletion {
			t.Fatalf("the log begins with %s", describe(e))
		}
	}
}

// The bytes of trimmed entries are given back: the budget holds however often history is turned
// over.
func TestTrimKeepsCount(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 8000, HistoryMinAge: time.Hour})
	for range 1000 {
		s.add(t, time.Second)
	}
	s.checkKept(t, 8, s.rv-8)
	_ = s.Replace(nil, 5) // void
	s.checkKept(t, 0, 5)
	s.rv = 5
	for range 20 {
		s.add(t, time.Second)
	}
	s.checkKept(t, 8, s.rv-8)
}
