package fakeapiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var deadline = testutil.Deadline

// server starts a Server that ends with the test.
func server(t *testing.T, o Options) *Server {
	t.Helper()
	s := New(o)
	t.Cleanup(s.Close)
	return s
}

// get sends one GET.
func get(t *testing.T, s *Server, path string, opts ...rawclient.RequestOption) *rawclient.ListResult {
	t.Helper()
	l, err := rawclient.List(deadline(t), s.URL, path, opts...)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return l
}

// watch opens a watch and waits for its head.
func watch(t *testing.T, s *Server, path string, opts ...rawclient.RequestOption) *rawclient.Watcher {
	t.Helper()
	w := rawclient.Watch(deadline(t), s.URL, path, opts...)
	t.Cleanup(w.Close)
	if _, _, err := w.Head(deadline(t)); err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	return w
}

// expect compares the next events with their String forms.
func expect(t *testing.T, w *rawclient.Watcher, want ...string) {
	t.Helper()
	for _, one := range want {
		e, err := w.Next(deadline(t))
		if err != nil {
			t.Fatalf("want %q, stream is over: %v", one, err)
		}
		if e.String() != one {
			t.Fatalf("want %q, got %q: %s", one, e, e.Line)
		}
	}
}

// ends waits for the end of a watch and checks how it was.
func ends(t *testing.T, w *rawclient.Watcher, want rawclient.Ending) *rawclient.WatchEnd {
	t.Helper()
	end, err := w.Wait(deadline(t))
	if err != nil {
		t.Fatalf("stream did not end: %v", err)
	}
	if end.Reason != want {
		t.Fatalf("want the stream %s, got %v", want, end)
	}
	return end
}

// watched waits until a resource has so many long watches.
func watched(t *testing.T, s *Server, gvr schema.GroupVersionResource, long int) {
	t.Helper()
	err := s.Await(deadline(t), func() bool { return s.OpenWatches(gvr).Long == long })
	if err != nil {
		t.Fatalf("%s: want %d open watches, got %d: %v", gvr.Resource, long, s.OpenWatches(gvr).Long, err)
	}
}

func wantStatus(t *testing.T, l *rawclient.ListResult, code int, message string) {
	t.Helper()
	if l.Status != code || l.Failure == nil || !strings.Contains(l.Failure.Message, message) {
		t.Fatalf("want %d %q, got %d: %s", code, message, l.Status, l.Body)
	}
}

func wantBody(t *testing.T, l *rawclient.ListResult, code int, body string) {
	t.Helper()
	if l.Status != code || string(l.Body) != body {
		t.Fatalf("want %d %q\ngot  %d %q", code, body, l.Status, l.Body)
	}
}

func wantKeys(t *testing.T, l *rawclient.ListResult, keys ...string) {
	t.Helper()
	if l.Status != http.StatusOK || !slices.Equal(l.Keys(), keys) {
		t.Fatalf("want %v, got %d %v: %.300s", keys, l.Status, l.Keys(), l.Body)
	}
}

func TestGoAPI(t *testing.T) {
	s := server(t, Options{})
	a := s.Create(ConfigMaps, "c1", "a", WithData("k", "v"))
	if a != s.Revision() || a == 0 {
		t.Fatalf("Create returned %d, revision is %d", a, s.Revision())
	}
	if again := s.Create(ConfigMaps, "c1", "a"); again != 0 {
		t.Errorf("second Create returned %d", again)
	}
	if same := s.Update(ConfigMaps, "c1", "a", WithData("k", "v")); same != a {
		t.Errorf("an update that changes nothing: want %d, got %d", a, same)
	}
	b := s.Update(ConfigMaps, "c1", "a", WithLabel("app", "x"), WithAnnotation("n", "1"))
	if b != a+1 {
		t.Errorf("Update: want %d, got %d", a+1, b)
	}
	if o, ok := s.Get(ConfigMaps, "c1", "a"); !ok || o.RV != b || o.Labels["app"] != "x" || o.Key != "c1/a" ||
		o.UID == "" || !strings.Contains(string(o.Raw), o.UID) {
		t.Errorf("Get: %+v %v", o, ok)
	}
	if bump := s.Bump(); bump != b+1 {
		t.Errorf("Bump: want %d, got %d", b+1, bump)
	}
	if gone := s.Delete(ConfigMaps, "c1", "a"); gone != b+2 || len(s.List(ConfigMaps)) != 0 {
		t.Errorf("Delete: %d, left %v", gone, s.List(ConfigMaps))
	}
	if s.Delete(ConfigMaps, "c1", "a") != 0 || s.Update(ConfigMaps, "c1", "a", WithData("k", "w")) != 0 {
		t.Error("what is gone was changed")
	}
}

func TestFinalizersAndEdits(t *testing.T) {
	s := server(t, Options{})
	start := s.Create(Widgets, "n", "w", WithFinalizers("example.com/x"), WithField("spec.color", "red"), WithPadding(10))
	w := watch(t, s, fmt.Sprintf("/apis/example.com/v1/widgets?watch=1&resourceVersion=%d", start))
	s.Delete(Widgets, "n", "w")
	s.Update(Widgets, "n", "w", WithFinalizers())
	expect(t, w, fmt.Sprintf("MODIFIED n/w %d", start+1), fmt.Sprintf("DELETED n/w %d", start+2))
	if raw := string(w.Events()[1].Raw); !strings.Contains(raw, "example.com/x") {
		t.Errorf("DELETED lost the finalizers that were stored: %s", raw)
	}
	s.Create(Widgets, "n", "v", WithJSON(`{"metadata":{"labels":{"a":"b"}},"spec":{"size":3}}`))
	s.Update(Widgets, "n", "v", WithField("spec.size", 4))
	s.Update(Widgets, "n", "v", WithoutField("metadata.labels.a"), WithoutField("spec.size"))
	o, _ := s.Get(Widgets, "n", "v")
	if raw := string(o.Raw); !strings.Contains(raw, `"generation":3`) || strings.Contains(raw, "size") ||
		len(o.Labels) > 0 {
		t.Errorf("after the edits: %s", raw)
	}
}
