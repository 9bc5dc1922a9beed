package cache

import (
	"fmt"
	"slices"
	"testing"

	"spillway/internal/object"
)

// objects makes pods from "name=uid@rv" words.
func objects(t testing.TB, words ...string) []*object.Object {
	t.Helper()
	var out []*object.Object
	for _, w := range words {
		var name, uid string
		var rv uint64
		i, j := slices.Index([]byte(w), '='), slices.Index([]byte(w), '@')
		name, uid = w[:i], w[i+1:j]
		if _, err := fmt.Sscan(w[j+1:], &rv); err != nil {
			t.Fatal(err)
		}
		out = append(out, pod(t, name, rv, uid))
	}
	return out
}

// What a relist puts into the log (design D5). P is 20 everywhere.
func TestARelistAppendsItsDifferenceAsASeam(t *testing.T) {
	f := func(before []string, l uint64, after []string, want string) {
		t.Helper()
		r := newPods(unlimited)
		_ = r.Replace(objects(t, before...), 20)
		start, generation := r.Snapshot(), r.Generation()
		if err := r.Replace(objects(t, after...), l); err != nil {
			t.Fatal(err)
		}
		if got := logFrom(t, r.Log(), start.Next); got != want {
			t.Errorf("log %s\nwant %s", got, want)
		}
		expect := state{}
		for _, o := range objects(t, after...) {
			expect[o.Key] = version(o)
		}
		checkState(t, r, l, expect.String())
		if r.Generation() != generation {
			t.Error("history is void")
		}
		for pos := start.Next; pos < r.Log().Head(); pos++ {
			if e, _ := r.Log().EntryAt(pos); e.CompleteRV != 20 && pos != r.Log().Head()-1 ||
				e.Seam.IsOpen() != (pos != r.Log().Head()-1) {
				t.Errorf("entry %s at %d is complete through %d", describe(e), pos, e.CompleteRV)
			}
		}
	}
	a, b, c := "a=a@11", "b=b@12", "c=c@13"
	list := func(words ...string) []string { return words }
	// Nothing happened: nothing, or progress alone.
	f(list(a, b), 20, list(a, b), "")
	f(list(a, b), 30, list(b, a), "progress@30/end")
	// Deletions first, stamped P; then what came and changed, by its own resourceVersion.
	f(list(a, b, c), 30, list(b), "deleted-a@20/deletion deleted-c@20/deletion progress@30/end")
	f(list(a), 30, list("z=z@21", a, "b=b@25"), "added-z@21/change added-b@25/change progress@30/end")
	f(list(a, b, c), 30, list("a=a@28", "d=d@24", "b=b@22"),
		"deleted-c@20/deletion modified-b@22/change added-d@24/change modified-a@28/change progress@30/end")
	f(nil, 30, nil, "progress@30/end")
	f(list(a, b), 30, nil, "deleted-a@20/deletion deleted-b@20/deletion progress@30/end")
	// A new UID is another object.
	f(list(a, b), 30, list("a=a2@25", b), "deleted-a@20/deletion added-a@25/change progress@30/end")
	// The object whose own resourceVersion is P: its DELETED must be newer than the object, if L is
	// free.
	f(list(a, "p=p@20"), 30, list(), "deleted-a@20/deletion deleted-p@30/change progress@30/end")
	f(list(a, "p=p@20"), 30, list("b=b@29"), "deleted-a@20/deletion added-b@29/change deleted-p@30/change progress@30/end")
	f(list(a, "p=p@20"), 30, list("b=b@30"),
		"deleted-a@20/deletion deleted-p@20/deletion added-b@30/change progress@30/end")
	f(list("p=p@20"), 30, list("p=p@25"), "modified-p@25/change progress@30/end")
	// But not if its name was taken again: the DELETED would take the new object away.
	f(list(a, "p=p@20"), 30, list("p=p2@25"),
		"deleted-a@20/deletion deleted-p@20/deletion added-p@25/change progress@30/end")
}

// Where a client continues that was complete through some resourceVersion. P is 20, L is 30.
func TestResumeAroundSeam(t *testing.T) {
	setUp := func(after ...string) (*Log, int64) {
		r := newPods(unlimited)
		_ = r.Replace(objects(t, "a=a@11", "b=b@12"), 15)
		_ = r.Add(pod(t, "c", 18))
		r.Progress(20, 0)
		_ = r.Replace(objects(t, after...), 30)
		_ = r.Add(pod(t, "e", 31))
		pos, err := r.Log().Find(15)
		if err != nil {
			t.Fatal(err)
		}
		return r.Log(), int64(pos)
	}
	// added-c progress@20 | deleted-a deleted-b added-d@25 end@30 | added-e
	l, first := setUp("c=c@18", "d=d@25")
	checkFind(t, l, 14, -15)
	checkFind(t, l, 15, first)
	checkFind(t, l, 17, first)
	checkFind(t, l, 18, first+1)
	checkFind(t, l, 19, first+1)
	checkFind(t, l, 20, first+2) // at P: before the deletions
	for rv := uint64(21); rv < 30; rv++ {
		checkFind(t, l, rv, -30) // it may have seen what came and went inside the gap
	}
	checkFind(t, l, 30, first+6)
	checkFind(t, l, 31, first+7)
	// The same without deletions: added-c progress@20 | modified-a@22 end@30 | added-e
	l, first = setUp("a=a@22", "b=b@12", "c=c@18")
	checkFind(t, l, 20, first+2)
	for rv := uint64(21); rv < 30; rv++ {
		checkFind(t, l, rv, -30)
	}
	checkFind(t, l, 30, first+4)
	// With deletions alone.
	l, first = setUp("a=a@11")
	checkFind(t, l, 20, first+2)
	for rv := uint64(21); rv < 30; rv++ {
		checkFind(t, l, rv, -30)
	}
	checkFind(t, l, 30, first+5)
	// A gap in which nothing seems to have happened is a gap all the same.
	l, first = setUp("a=a@11", "b=b@12", "c=c@18")
	checkFind(t, l, 20, first+2)
	for rv := uint64(21); rv < 30; rv++ {
		checkFind(t, l, rv, -30)
	}
	checkFind(t, l, 30, first+3)
}

// Two gaps with nothing between them: the second one's deletions repeat the first one's end.
func TestSeamAfterSeam(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@5", "b=b@6"), 10)
	first := int64(r.Snapshot().Next)
	_ = r.Replace(objects(t, "b=b@6"), 20)
	_ = r.Replace(objects(t), 30)
	want := "deleted-a@10/deletion progress@20/end deleted-b@20/deletion progress@30/end"
	if got := logFrom(t, r.Log(), uint64(first)); got != want {
		t.Fatalf("log %s\nwant %s", got, want)
	}
	checkFind(t, r.Log(), 10, first)
	checkFind(t, r.Log(), 15, -20)
	checkFind(t, r.Log(), 20, first+2)
	checkFind(t, r.Log(), 25, -30)
	checkFind(t, r.Log(), 30, first+4)
}

// Another representation of the same versions replaces them without an event (design D2).
func TestOtherBytesWithoutEvent(t *testing.T) {
	phase := func(r *Resource, at *Snapshot) string {
		o, ok := at.Get("n/a")
		if !ok {
			t.Fatal("a is gone")
		}
		return o.Fields().Get("status.phase")
	}
	for _, l := range []uint64{20, 30} {
		r := newPods(unlimited)
		_ = r.Replace([]*object.Object{pod(t, "a", 11, "a", "old"), pod(t, "b", 12)}, 15)
		r.Progress(20, 0)
		before := r.Snapshot()
		if s, err := r.SnapshotAt(15); err != nil || phase(r, s) != "old" { // for a page of a list
			t.Fatal(err)
		}
		_ = r.Replace([]*object.Object{pod(t, "a", 11, "a", "new"), pod(t, "b", 12)}, l)
		checkState(t, r, l, "a=a@11 b=b@12")
		want := ""
		if l > 20 {
			want = "progress@30/end"
		}
		if got := logFrom(t, r.Log(), before.Next); got != want {
			t.Errorf("list at %d: log %s, want %s", l, got, want)
		}
		if phase(r, r.Snapshot()) != "new" || phase(r, before) != "old" {
			t.Errorf("list at %d: phase %s, and before %s", l, phase(r, r.Snapshot()), phase(r, before))
		}
		if s, err := r.SnapshotAt(l); err != nil || phase(r, s) != "new" {
			t.Errorf("list at %d: the state at %d has the old representation (%v)", l, l, err)
		}
		if _, err := r.SnapshotAt(15); err == nil { // history may hold older versions, in the old representation
			t.Errorf("list at %d: the state at 15 can still be had", l)
		}
	}
}

// Objects that did not change stay the ones that are held already, so that what was made of them is
// kept.
func TestRelistKeepsUnchangedObjects(t *testing.T) {
	r := newPods(unlimited)
	a := pod(t, "a", 11)
	_ = r.Replace([]*object.Object{a}, 20)
	_ = r.Replace([]*object.Object{pod(t, "a", 11), pod(t, "b", 25)}, 30)
	if o, ok := r.Snapshot().Get("n/a"); !ok || o != a {
		t.Error("an equal object was replaced")
	}
}
