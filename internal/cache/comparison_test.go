package cache

import "testing"

func TestAComparisonCountsEachDifferentObject(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace(objects(t, "a=a@11", "b=b@12", "c=c@13"), 20)
	f := func(want int, upstreams ...string) {
		t.Helper()
		c := r.Snapshot().Compare()
		for _, o := range objects(t, upstreams...) {
			c.CompareVersion(o.Key, o.RV)
		}
		if got := c.Differences(); got != want {
			t.Errorf("%v: %d differences, want %d", upstreams, got, want)
		}
	}
	f(0, "a=a@11", "b=b@12", "c=c@13")
	f(1, "a=a@11", "b=b@12")
	f(1, "a=a@11", "b=b@12", "c=c@13", "d=d@14")
	f(1, "a=a@11", "b=b@14", "c=c@13")
	f(2, "a=a@11", "b=b@12", "d=d@14")
	f(3)
	c := r.Snapshot().Compare()
	for _, o := range objects(t, "a=a@11", "b=b@12", "c=c@13") {
		c.CompareVersion(o.Key, o.RV)
		c.CompareBytes(o)
	}
	if n := c.Differences(); n != 0 {
		t.Errorf("%d differences of equal bytes", n)
	}
	c.CompareBytes(objects(t, "b=other@12")[0]) // another UID, hence other bytes
	if n := c.Differences(); n != 1 {
		t.Errorf("%d differences of other bytes", n)
	}
	s := r.Snapshot()
	if got := s.KeyAt(0) + " " + s.KeyAt(2) + " " + s.KeyAt(3); got != "n/a n/c " {
		t.Errorf("keys %q", got)
	}
	if !r.IsCurrent(s) {
		t.Error("the present state is not current")
	}
	_ = r.Replace(nil, 15)
	if r.IsCurrent(s) {
		t.Error("a state of a void history is current")
	}
}
