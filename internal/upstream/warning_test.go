package upstream

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
)

// Upstream's Warning is known as soon as the Sink knows anything (W-4).
func TestWarning(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "gadgets"}
	_, c := apiserver(t, fakeapiserver.Options{Resources: []fakeapiserver.Resource{{GVR: gvr, Kind: "Gadget",
		Deprecated: "gadgets are old news"}}})
	expectWarnings(t, c, gvr)
}

// What upstream thinks of the proxy's credentials is no client's business.
func TestWarningsAboutCredentialsAreDropped(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "gadgets"}
	_, c := apiserver(t, fakeapiserver.Options{
		Warning:   `take a \"better\" token, will you`,
		Resources: []fakeapiserver.Resource{{GVR: gvr, Kind: "Gadget", Deprecated: "gadgets are old news"}},
	})
	expectWarnings(t, c, gvr)
}

func expectWarnings(t *testing.T, c *Client, gvr schema.GroupVersionResource) {
	t.Helper()
	for want, res := range map[string]*object.Resource{
		`299 - "gadgets are old news"`: object.NewResource(gvr, "Gadget", false, false),
		"":                             configMaps,
	} {
		sink := newRecorder()
		var r *Reflector
		heard := make(chan string, 10)
		sink.fail = func(string) error { heard <- r.Warning(); return nil }
		r = NewReflector(c, res, sink)
		running(t, r)
		if got := <-heard; got != want {
			t.Errorf("%s: %s, want %s", res, got, want)
		}
	}
}

// Only a watch that upstream ends cleanly, and before its time, says that upstream begins again.
func TestEarlyEnd(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	var ends atomic.Int32
	sink := newRecorder()
	r := mirror(t, c, widgets, sink, WithObserver(Observer{OnEarlyEnd: func() { ends.Add(1) }}))
	sink.awaitState(t, s, widgets)
	watching := func(n uint64) {
		t.Helper()
		s.Create(widgets.GVR, "a", "w") // the event proves that there is a watch
		sink.awaitState(t, s, widgets)
		s.Delete(widgets.GVR, "a", "w")
		sink.awaitState(t, s, widgets)
		for ctx := deadline(t); r.Status().Watches < n && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // a reflector that begins again may receive both by the watch before
		}
		if got := r.Status().Watches; got != n {
			t.Fatalf("%d watches, want %d", got, n)
		}
	}
	watching(1)
	s.CutWatches(widgets.GVR)
	watching(2)
	r.Relist("a test")
	watching(3)
	if n := ends.Load(); n != 0 {
		t.Errorf("%d early ends", n)
	}
	s.DropWatches(widgets.GVR)
	watching(4)
	if n := ends.Load(); n != 1 {
		t.Errorf("%d early ends, want 1", n)
	}
}
