package cache

import (
	"errors"
	"testing"
)

// The API server shows objects otherwise at unchanged resourceVersions: the state follows without
// an event, the old representation is not served any more, and readers that have started read on.
func TestAnotherRepresentationReplacesBytesWithoutAnEvent(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11", "b=b@12"), 15)
	_ = r.Add(pod(t, "c", 18))
	_ = r.Update(pod(t, "a", 20))
	if _, err := r.SnapshotAt(18); err != nil {
		t.Fatal(err)
	}
	head, generation := r.Log().Head(), r.Generation()

	same := objects(t, "b=b@12", "c=c@18")
	if n := r.ReplaceRepresentation(same); n != 0 || r.Generation() != generation {
		t.Errorf("%d objects changed, generation %d", n, r.Generation())
	}
	shown := r.Snapshot()
	n := r.ReplaceRepresentation(append(same[:1:1], // as it was
		pod(t, "c", 18, "c", "Other"), // otherwise
		pod(t, "a", 11, "a", "Other"), // the list is behind the stream
		pod(t, "d", 19, "d", "Other"), // ahead of it
	))
	if n != 1 {
		t.Errorf("%d objects changed", n)
	}
	checkState(t, r, 20, "a=a@20 b=b@12 c=c@18")
	if o, _ := r.Snapshot().Get("n/c"); string(o.JSON()) != string(pod(t, "c", 18, "c", "Other").JSON()) {
		t.Errorf("shown as %s", o.JSON())
	}
	if o, _ := r.Snapshot().Get("n/a"); o.RV != 20 {
		t.Errorf("a went back to %d", o.RV)
	}
	if s := r.Snapshot(); s.Bytes != shown.Bytes+int64(len("Other")) {
		t.Errorf("%d bytes after %d", s.Bytes, shown.Bytes)
	}
	if r.Log().Head() != head {
		t.Error("there was an event")
	}
	if _, ok := r.Log().EntryAt(head - 1); !ok {
		t.Error("an open stream cannot read on")
	}
	for _, rv := range []uint64{15, 18, 19} {
		checkFind(t, r.Log(), rv, -20)
		var expired *ExpiredError
		if _, err := r.SnapshotAt(rv); !errors.As(err, &expired) {
			t.Errorf("the state at %d: %v", rv, err)
		}
	}
	checkFind(t, r.Log(), 20, int64(head))
	if s, err := r.SnapshotAt(20); err != nil || s.Len() != 3 {
		t.Errorf("the present state: %v", err)
	}
	if r.Generation() != generation+1 {
		t.Errorf("generation %d after %d", r.Generation(), generation)
	}
	// What is trimmed later does not bring the past back.
	r.limits = HistoryLimits{HistoryBytes: 1}
	_ = r.Update(pod(t, "b", 21))
	checkFind(t, r.Log(), 20, -21)
}

// Before there is a state there is nothing to show otherwise.
func TestRepresentBeforeReady(t *testing.T) {
	r := newPods(unlimited)
	if n := r.ReplaceRepresentation(objects(t, "a=a@11")); n != 0 || r.IsReady() {
		t.Errorf("%d objects changed, ready: %v", n, r.IsReady())
	}
}

// A complete state from the API server may show objects otherwise, too.
func TestReplaceRepresents(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11", "b=b@12"), 15)
	_ = r.Add(pod(t, "c", 18))
	_ = r.Replace(append(objects(t, "a=a@11", "c=c@18"), pod(t, "b", 12, "b", "Other")), 20)
	checkState(t, r, 20, "a=a@11 b=b@12 c=c@18")
	checkFind(t, r.Log(), 18, -20)
	checkFind(t, r.Log(), 20, int64(r.Log().Head()))
}
