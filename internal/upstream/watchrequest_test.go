package upstream

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A request for "not older than" is not older than what the mirror's readers were promised.
func TestAtLeast(t *testing.T) {
	f := func(o metav1.ListOptions, promised uint64, want string) {
		t.Helper()
		calls := 0
		r := &Reflector{promised: func() uint64 { calls++; return promised }}
		if got := r.atLeast(o).ResourceVersion; got != want {
			t.Errorf("%+v with %d promised asks for %q, want %q", o, promised, got, want)
		}
		if complete := o.Continue == ""; calls != 1 && complete || calls != 0 && !complete {
			t.Errorf("%+v: it is called %d times", o, calls)
		}
	}
	f(metav1.ListOptions{ResourceVersion: "100"}, 150, "150")
	f(metav1.ListOptions{ResourceVersion: "200"}, 150, "200")
	f(metav1.ListOptions{ResourceVersion: ""}, 150, "")
	f(metav1.ListOptions{ResourceVersion: "0"}, 150, "0")
	f(metav1.ListOptions{ResourceVersion: "100", Continue: "token"}, 150, "100")
}
