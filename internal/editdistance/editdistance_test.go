package editdistance

import "testing"

func TestOf(t *testing.T) {
	f := func(a, b string, want int) {
		t.Helper()
		if got := Of(a, b); got != want {
			t.Errorf("%s to %s: %d", a, b, got)
		}
	}
	f("", "", 0)
	f("", "abc", 3)
	f("pods", "pods", 0)
	f("pds", "pods", 1)
	f("deploymnet", "deployment", 2)
	f("kitten", "sitting", 3)
}
