package cache

import (
	"errors"
	"testing"
)

func TestAHistoryResetExpiresEveryPosition(t *testing.T) {
	f := func(l uint64, after ...string) {
		t.Helper()
		r := newPods(unlimited)
		_ = r.Replace(objects(t, "a=a@11", "b=b@12"), 15)
		_ = r.Add(pod(t, "c", 18))
		r.Progress(20, 0)
		if _, err := r.SnapshotAt(16); err != nil {
			t.Fatal(err)
		}
		before, generation := r.Snapshot(), r.Generation()
		_ = r.Replace(objects(t, after...), l)
		expect := state{}
		for _, o := range objects(t, after...) {
			expect[o.Key] = version(o)
		}
		checkState(t, r, l, expect.String())
		if r.Generation() != generation+1 {
			t.Errorf("generation %d after %d", r.Generation(), generation)
		}
		// The position of every reader expires, even of one that had everything.
		if before.Next >= r.Log().Head() {
			t.Errorf("a reader at the head, %d, would wait: the head is %d", before.Next, r.Log().Head())
		}
		for pos := uint64(1); pos < r.Log().Head(); pos++ {
			if e, ok := r.Log().EntryAt(pos); ok {
				t.Errorf("position %d is readable: %s", pos, describe(e))
			}
		}
		// Progress that was observed before means nothing now.
		r.Progress(1000, generation)
		if r.CompleteRV() != l {
			t.Errorf("through %d", r.CompleteRV())
		}
		head := int64(r.Log().Head())
		checkFind(t, r.Log(), l, head)
		checkFind(t, r.Log(), l-1, -int64(l))
		if _, err := r.SnapshotAt(l - 1); err == nil {
			t.Errorf("the state at %d is still known", l-1)
		}
		if l >= 20 {
			checkFind(t, r.Log(), l+1, head)
			return
		}
		// Ahead of the log now, and promised before or not: unknown, until the log itself has passed it.
		for _, rv := range []uint64{l + 1, 20, 21, 1000} {
			checkFind(t, r.Log(), rv, -int64(l))
		}
		_ = r.Add(pod(t, "z", l+1))
		checkFind(t, r.Log(), l+1, head+1)
		checkFind(t, r.Log(), 20, -int64(l+1))
		r.Progress(20, r.Generation())
		checkFind(t, r.Log(), 20, head+2)
		checkFind(t, r.Log(), 21, head+2)
		checkFind(t, r.Log(), 1000, head+2)
	}
	all := []string{"a=a@11", "b=b@12", "c=c@18"}
	f(17, all...)
	f(17)
	f(12, all[:2]...)
	// At P itself nothing can have been deleted.
	f(20, all[:2]...)
	// A version at or below P that was never seen: another history with the same numbers.
	f(30, "a=a@11", "b=b@12", "c=c@18", "d=d@19")
	f(30, "a=a@11", "b=b@13", "c=c@18")
	f(30, "a=a@11", "b=other@12", "c=c@18")
	f(30, "a=a@11", "b=b@12", "c=c@18", "d=d@20")
	f(30, "a=a@11", "b=b@12", "c=c@17")
	f(20, "a=a@11", "b=b@12", "c=c@18", "d=d@19")
}

// The greatest promise counts over all generations.
func TestTheGreatestPromiseCountsOverAllGenerations(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(nil, 100)
	_ = r.Replace(nil, 50)
	_ = r.Replace(nil, 20)
	r.Progress(60, r.Generation())
	checkFind(t, r.Log(), 70, -60)
	checkFind(t, r.Log(), 100, -60)
	r.Progress(99, r.Generation())
	checkFind(t, r.Log(), 100, -99)
	r.Progress(100, r.Generation())
	checkFind(t, r.Log(), 101, int64(r.Log().Head()))
}

// What the API server has been seen to reach since belongs to the history that is, though the log
// has yet to hear of it.
func TestVersionsReachedUpstreamBelongToTheNewHistory(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11"), 100)
	before := r.Generation()
	_ = r.Replace(objects(t, "a=a@11"), 50)
	checkFind(t, r.Log(), 60, -50)
	r.NoteUpstreamRV(70, before) // a question that was put to the history before
	checkFind(t, r.Log(), 60, -50)
	r.NoteUpstreamRV(60, r.Generation())
	checkFind(t, r.Log(), 60, int64(r.Log().Head()))
	checkFind(t, r.Log(), 61, -50)
	r.NoteUpstreamRV(55, r.Generation()) // an answer that was overtaken
	checkFind(t, r.Log(), 60, int64(r.Log().Head()))
	var expired *ExpiredError
	if _, err := r.Log().Find(61); !errors.As(err, &expired) || !expired.IsFutureRV() {
		t.Errorf("%v is not ahead", err)
	}
	if _, err := r.Log().Find(49); !errors.As(err, &expired) || expired.IsFutureRV() {
		t.Errorf("%v is ahead", err)
	}
	_ = r.Update(pod(t, "a", 65))
	checkFind(t, r.Log(), 60, int64(r.Log().Head())-1)
	_ = r.Replace(objects(t, "a=a@11"), 40) // once more
	checkFind(t, r.Log(), 60, -40)
}

// What a comparison promised counts like what the log has reached: after history was void it
// belongs to no known history.
func TestVoidAfterWhatWasSeen(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11"), 100)
	r.NoteUpstreamRV(110, r.Generation())
	r.NoteHistoryReset(r.Generation())
	_ = r.Replace(objects(t, "a=a@11"), 107)
	checkFind(t, r.Log(), 110, -107)
}

// A client cannot go on from a resourceVersion of a void history; from one that is merely older
// than the log it may, by a backfill.
func TestMissingAndVoid(t *testing.T) {
	r := newPods(HistoryLimits{HistoryBytes: 400, HistoryMinAge: 0})
	l := r.Log()
	find := func(rv uint64, missing, void bool) {
		t.Helper()
		var expired *ExpiredError
		if _, err := l.Find(rv); !errors.As(err, &expired) || expired.IsGap() != missing || expired.Void != void {
			t.Errorf("%d: %v, missing %v, void %v", rv, expired, expired.IsGap(), expired.Void)
		}
	}
	_ = r.Replace(objects(t, "a=a@11", "b=b@12"), 20)
	find(15, true, false)
	_ = r.Replace(objects(t, "a=a@25", "b=b@12"), 30)
	find(25, true, false) // inside the seam
	voids := l.Epoch()
	_ = r.Replace(objects(t, "a=a@11"), 18) // restored
	find(15, false, true)
	find(25, false, true)
	if l.Epoch() != voids+1 {
		t.Errorf("void %d times", l.Epoch())
	}
	_ = r.Replace(objects(t, "a=a@11"), 40)
	for rv := uint64(41); rv < 50; rv++ {
		_ = r.Update(pod(t, "a", rv))
	}
	if l.Floor() <= 40 {
		t.Fatal("the log kept everything")
	}
	find(17, false, true)
	find(40, true, false)
	r.Close()
	find(l.Floor()-1, false, true)
}

// A proof that comes while a complete state is on its way promises more than that state says, which
// is no other history then: nothing happened in between.
func TestProvenMeanwhile(t *testing.T) {
	all := []string{"a=a@11", "b=b@12"}
	for _, c := range []struct {
		name  string
		ask   bool
		l     uint64
		after []string
		void  bool
	}{
		{"asked for before", true, 150, all, false},
		{"at what was promised then", true, 140, all, false},
		{"below what was promised then", true, 139, all, true},
		{"not asked for", false, 150, all, true},
		{"with a change that the proof denies", true, 150, []string{"a=a@145", "b=b@12"}, true},
		{"without what the proof says is there", true, 150, all[:1], true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPods(unlimited)
			_ = r.Replace(objects(t, all...), 98)
			r.Progress(140, 0)
			if c.ask && r.BeginRelist() != 140 {
				t.Error("it asks for another state")
			}
			r.Progress(160, 0)
			_ = r.Replace(objects(t, c.after...), c.l)
			want, generation := uint64(160), uint64(0)
			if c.void {
				want, generation = c.l, 1
			}
			if r.CompleteRV() != want || r.Generation() != generation {
				t.Errorf("through %d in generation %d, want %d in %d", r.CompleteRV(), r.Generation(), want, generation)
			}
			_ = r.Replace(objects(t, c.after...), want-1) // which was not requested
			if r.Generation() != generation+1 {
				t.Error("one request counts twice")
			}
		})
	}
}

// A request for the first state is for that one alone.
func TestAskedForTheFirstState(t *testing.T) {
	r := newPods(unlimited)
	r.BeginRelist()
	_ = r.Replace(objects(t, "a=a@11"), 98)
	_ = r.Replace(objects(t, "a=a@11"), 97)
	if r.Generation() != 1 || r.CompleteRV() != 97 {
		t.Errorf("through %d in generation %d", r.CompleteRV(), r.Generation())
	}
}

// What the API server has disowned is proven no more: a bookmark of the new history says nothing of
// the old one.
func TestDisownedIsNotProven(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11"), 100)
	r.NoteHistoryReset(0)
	r.Progress(130, 0)
	if r.CompleteRV() != 100 {
		t.Errorf("through %d", r.CompleteRV())
	}
	_ = r.Replace(objects(t, "a=a@11"), 120)
	if r.Progress(130, r.Generation()); r.CompleteRV() != 130 {
		t.Errorf("through %d of the new history", r.CompleteRV())
	}
}
