package rig

import (
	"math"
	"strings"
	"testing"
)

func TestReplaceBetween(t *testing.T) {
	text := "kept\n<!-- begin a -->\nold\n<!-- end a -->\nkept, too\n<!-- begin b -->\n<!-- end b -->\n"
	got, err := replaceBetween(text, "a", "new\n")
	want := strings.Replace(text, "old", "new", 1)
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := replaceBetween(text, "b", "new\n"); err != nil ||
		!strings.HasSuffix(got, "<!-- begin b -->\nnew\n<!-- end b -->\n") {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := replaceBetween(text, "c", "new\n"); err == nil {
		t.Error("wrote without markers")
	}
}

func TestLimits(t *testing.T) {
	f := func(l Limit, value float64, want string) {
		t.Helper()
		if got := l.judge(value); got != want {
			t.Errorf("%+v judges %g %q, want %q", l, value, got, want)
		}
	}
	f(NoLimit, 7, "")
	f(AtMost(2, 1), 1, aimed)
	f(AtMost(2, 1), 1.5, reached)
	f(AtMost(2, 1), 2.1, missed)
	f(AtLeast(5, 10), 11, aimed)
	f(AtLeast(5, 10), 5, reached)
	f(AtLeast(5, 10), 4.9, missed)
	f(AtMost(2, 1), math.NaN(), missed)
	f(AtLeast(5, 10), math.NaN(), missed)
}

func TestMedian(t *testing.T) {
	f := func(want float64, values ...float64) {
		t.Helper()
		if got := Median(values); got != want {
			t.Errorf("Median(%v) = %g, want %g", values, got, want)
		}
	}
	f(2, 3, 1, 2)
	f(2.5, 4, 1, 2, 3)
	f(7, 7)
	if !math.IsNaN(Median(nil)) {
		t.Error("nothing has a median")
	}
}
