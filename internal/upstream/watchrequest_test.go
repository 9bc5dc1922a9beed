package upstream

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fakeapiserver"
	"spillway/internal/upstream/capabilities"
)

// A request for "not older than" is not older than what the mirror's readers were promised.
func TestAtLeast(t *testing.T) {
	f := func(o metav1.ListOptions, promised uint64, want string) {
		t.Helper()
		calls := 0
		r := &Reflector{readPromised: func() uint64 { calls++; return promised }}
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

// A mirror finds out by its own watch-list whether upstream serves and compresses these, before the
// Sink knows anything.
func TestMirrorLearnsOfWatchLists(t *testing.T) {
	f := func(release fakeapiserver.Kubernetes, watchList, compression capabilities.Capability) {
		t.Helper()
		_, c := apiserver(t, fakeapiserver.Options{Kubernetes: release})
		sink := newRecorder()
		learnt := make(chan capabilities.Summary, 10)
		sink.fail = func(string) error { learnt <- c.Capabilities(); return nil }
		mirror(t, c, configMaps, sink)
		if got := <-learnt; got.WatchList != watchList || got.WatchListCompression != compression {
			t.Errorf("%s: %v", release.Version, got)
		}
	}
	f(fakeapiserver.Kubernetes133, capabilities.Absent, capabilities.Unknown)
	f(fakeapiserver.Kubernetes136, capabilities.Present, capabilities.Absent)
	f(fakeapiserver.Kubernetes137, capabilities.Present, capabilities.Present)
}
