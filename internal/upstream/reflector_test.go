package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

func TestMirror(t *testing.T) {
	for _, res := range []*object.Resource{configMaps, widgets, nodes} {
		for _, o := range []fakeapiserver.Options{{}, {HTTP2: true}, {Kubernetes: fakeapiserver.Kubernetes136}} {
			t.Run(fmt.Sprintf("%s http2=%v %s", res, o.HTTP2, o.Kubernetes.Version), func(t *testing.T) {
				s, c := apiserver(t, o)
				namespace := ""
				if res.Namespaced {
					namespace = "a"
				}
				s.Create(res.GVR, namespace, "one")
				rv := s.Create(res.GVR, namespace, "two")
				sink := newRecorder()
				r := mirror(t, c, res, sink)
				prefix := strings.TrimPrefix(namespace+"/", "/")

				at := sink.awaitEntry(t, fmt.Sprintf("replace %d [%sone %stwo]", rv, prefix, prefix), 0)
				sink.await(t, "a bookmark right after it", func(log []string) bool {
					return len(log) > at && strings.HasPrefix(log[at], "bookmark ") &&
						strings.Contains(log[at], fmt.Sprintf(`"resourceVersion":"%d"`, rv)) && strings.Contains(log[at], res.Kind)
				})
				rv = s.Update(res.GVR, namespace, "one", fakeapiserver.WithLabel("x", "y"))
				at = sink.awaitEntry(t, fmt.Sprintf("update %sone %d", prefix, rv), at)
				rv = s.Delete(res.GVR, namespace, "two")
				at = sink.awaitEntry(t, fmt.Sprintf("delete %stwo %d", prefix, rv), at)
				rv = s.Create(res.GVR, namespace, "three")
				sink.awaitEntry(t, fmt.Sprintf("add %sthree %d", prefix, rv), at)
				sink.awaitState(t, s, res)

				if n := s.Lists(res.GVR); n != 0 {
					t.Errorf("%d LISTs: a watch-list needs none", n)
				}
				eventually(t, "its status", func() bool { return r.Status().RV == rv }) // the status follows the Sink
				st := r.Status()
				if !st.HasSynced || st.Err != nil || st.Replaces != 1 || st.Watches != 1 || st.Contact.IsZero() {
					t.Errorf("status %+v", st)
				}
			})
		}
	}
}

func TestBookmarks(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{BookmarkPeriod: 10 * time.Millisecond})
	s.Create(widgets.GVR, "a", "one")
	sink := newRecorder()
	mirror(t, c, widgets, sink)
	sink.await(t, "the state", func(log []string) bool { return len(log) > 0 })
	s.Create(configMaps.GVR, "a", "elsewhere")
	rv := s.Revision()
	s.Progress()
	sink.awaitEntry(t, fmt.Sprintf("bookmark %s", object.NewBookmark(widgets).Append(nil, rv, false)), 0)
}

// Every way in which a watch can end must leave the Sink with upstream's state.
func TestMirrorSurvives(t *testing.T) {
	gvr := configMaps.GVR
	f := func(name string, replaces uint64, fault func(*testing.T, *fakeapiserver.Server, *Reflector)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			s, c := apiserver(t, fakeapiserver.Options{})
			s.Create(gvr, "a", "keep")
			s.Create(gvr, "a", "lose")
			sink := newRecorder()
			r := mirror(t, c, configMaps, sink)
			sink.awaitState(t, s, configMaps)
			fault(t, s, r)
			sink.awaitState(t, s, configMaps)
			s.Create(gvr, "a", "last")
			sink.awaitState(t, s, configMaps)
			eventually(t, "its status", func() bool { // the status follows the Sink
				st := r.Status()
				return st.Replaces >= replaces && st.Err == nil
			})
		})
	}
	change := func(s *fakeapiserver.Server) {
		s.Delete(gvr, "a", "lose")
		s.Create(gvr, "a", "new")
		s.Update(gvr, "a", "keep", fakeapiserver.WithData("k", "v"))
	}
	f("a clean end", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.DropWatches(gvr)
		change(s)
	})
	f("half an event", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		change(s)
		s.CutWatches(gvr)
	})
	f("410", 2, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.HoldWatch(gvr)
		change(s)
		s.ForgetHistory(gvr)
		s.ReleaseWatch(gvr)
	})
	f("a restart", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.Restart()
		change(s)
	})
	f("an outage", 1, func(t *testing.T, s *fakeapiserver.Server, r *Reflector) {
		s.Down()
		before := r.Status().Failures
		eventually(t, "failures", func() bool { return r.Status().Failures >= before+2 })
		if st := r.Status(); st.Err == nil || !st.HasSynced {
			t.Errorf("during the outage: %+v", st)
		}
		change(s)
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
	})
	f("overload", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.FailWatches(2, http.StatusTooManyRequests)
		s.DropWatches(gvr)
		change(s)
	})
	f("an internal error", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.FailWatches(2, http.StatusInternalServerError)
		s.DropWatches(gvr)
		change(s)
	})
	f("no watch-list after 410", 2, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.HoldWatch(gvr)
		change(s)
		s.FailWatches(1, http.StatusGone)
		s.ForgetHistory(gvr)
		s.ReleaseWatch(gvr)
	})
	f("a corrupt deletion", 2, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.CorruptDelete(gvr, "a", "lose")
		s.Create(gvr, "a", "new")
	})
	f("a cache that is not ready", 1, func(_ *testing.T, s *fakeapiserver.Server, _ *Reflector) {
		s.FailWatches(2, http.StatusServiceUnavailable)
		s.DropWatches(gvr)
		change(s)
	})
	f("a state that cannot be read", 2, func(t *testing.T, s *fakeapiserver.Server, r *Reflector) {
		s.FailLists(2, http.StatusInternalServerError)
		s.FailWatches(1, http.StatusInternalServerError)
		r.Relist("test")
		eventually(t, "a failure", func() bool { return r.Status().Failures > 0 })
		if st := r.Status(); !st.HasSynced {
			t.Errorf("the last state is not held: %+v", st)
		}
		change(s)
	})
	f("a restored etcd", 2, func(_ *testing.T, s *fakeapiserver.Server, r *Reflector) {
		snap := s.Snapshot()
		change(s)
		s.RestoreFrom(snap)
		r.Relist("upstream is behind its own word") // which takes a query of its resourceVersion
	})
	f("a wish to relist", 2, func(_ *testing.T, s *fakeapiserver.Server, r *Reflector) {
		s.Reshape(gvr, fakeapiserver.WithAnnotation("shape", "new")) // other bytes, no event
		r.Relist("test")
	})
}

func TestListFallback(t *testing.T) {
	for _, res := range []*object.Resource{configMaps, widgets} {
		s, c := apiserver(t, fakeapiserver.Options{})
		for i := range 3 {
			s.Create(res.GVR, "a", fmt.Sprintf("o%d", i), fakeapiserver.WithPadding(100_000)) // enough for gzip
		}
		s.FailWatches(1, http.StatusNotFound)
		sink := newRecorder()
		var told atomic.Int32
		mirror(t, c, res, sink, WithObserver(Observer{OnFailure: func(error) { told.Add(1) }}))
		sink.awaitEntry(t, fmt.Sprintf("replace %d [a/o0 a/o1 a/o2]", s.Revision()), 0)
		sink.awaitState(t, s, res)
		s.Create(res.GVR, "a", "live")
		sink.awaitState(t, s, res)
		if told.Load() != 0 {
			t.Errorf("%s: a refused watch-list was reported as a failure", res)
		}
	}
}

func TestPages(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	for i := range 7 {
		s.Create(configMaps.GVR, "a", fmt.Sprintf("o%d", i))
	}
	l := loop{r: NewReflector(c, configMaps, newRecorder())}
	list, pages, err := l.readPages(deadline(t), metav1.ListOptions{Limit: 3})
	if err != nil || pages != 3 {
		t.Fatalf("%d pages, %v", pages, err)
	}
	var got []string
	for _, o := range list.Objects {
		if !strings.HasPrefix(string(o.JSON()), `{"kind":"ConfigMap",`) {
			t.Errorf("%s lacks its type: %s", o.Key, o.JSON())
		}
		got = append(got, o.Name())
	}
	if want := []string{"o0", "o1", "o2", "o3", "o4", "o5", "o6"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestErrorsAreVisible(t *testing.T) {
	f := func(code int, is func(error) bool) {
		t.Helper()
		s, c := apiserver(t, fakeapiserver.Options{})
		s.FailWatches(1000, code)
		s.FailLists(1000, code)
		told := make(chan error, 1000)
		r := mirror(t, c, configMaps, newRecorder(), WithObserver(Observer{OnFailure: func(err error) { told <- err }}))
		if err := <-told; !is(err) {
			t.Errorf("%d: told of %v", code, err)
		}
		if st := r.Status(); !is(st.Err) || st.HasSynced {
			t.Errorf("%d: status %+v", code, st)
		}
	}
	f(http.StatusForbidden, apierrors.IsForbidden)
	f(http.StatusNotFound, apierrors.IsNotFound)
	f(http.StatusMethodNotAllowed, apierrors.IsMethodNotSupported)
}

func TestUncacheable(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	s.Handle(configMaps.Path(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"v17"},"items":null}`))
	}))
	told := make(chan error, 1000)
	mirror(t, c, configMaps, newRecorder(), WithObserver(Observer{OnFailure: func(err error) { told <- err }}))
	for err := range told {
		if errors.Is(err, wire.ErrUncacheable) {
			return
		}
	}
}

// A Sink that fails gets nothing more until it gets the complete state.
func TestSinkFails(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	s.Create(configMaps.GVR, "a", "one")
	sink := newRecorder()
	failed := false
	sink.fail = func(what string) error {
		if !failed && strings.HasPrefix(what, "update") {
			failed = true
			return errors.New("out of budget")
		}
		return nil
	}
	mirror(t, c, configMaps, sink)
	sink.awaitState(t, s, configMaps)
	rv := s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithData("k", "1"))
	at := sink.awaitEntry(t, fmt.Sprintf("refused update a/one %d", rv), 0)
	s.Update(configMaps.GVR, "a", "one", fakeapiserver.WithData("k", "2"))
	sink.awaitState(t, s, configMaps)
	sink.await(t, "a Replace next", func(log []string) bool {
		return len(log) > at && strings.HasPrefix(log[at], "replace")
	})
}

// Run returns when its context ends, whatever it is doing, and may run again.
func TestRunEnds(t *testing.T) {
	f := func(name string, prepare func(*fakeapiserver.Server), ready func(*fakeapiserver.Server, *Reflector) bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			s, c := apiserver(t, fakeapiserver.Options{})
			prepare(s)
			r := NewReflector(c, configMaps, newRecorder()) // the shipped pauses
			for range 2 {
				ctx, cancel := context.WithCancel(deadline(t))
				done := make(chan error)
				go func() { done <- r.Run(ctx) }()
				for !ready(s, r) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
				if err := <-done; err != context.Canceled {
					t.Errorf("Run ended with %v", err)
				}
			}
		})
	}
	f("mirroring", func(*fakeapiserver.Server) {}, func(_ *fakeapiserver.Server, r *Reflector) bool {
		return r.Status().HasSynced
	})
	f("backing off", (*fakeapiserver.Server).Down, func(_ *fakeapiserver.Server, r *Reflector) bool {
		return r.Status().Failures > 0
	})
	f("waiting for an answer", func(s *fakeapiserver.Server) { s.StallReads(fakeapiserver.AllReads) },
		func(s *fakeapiserver.Server, _ *Reflector) bool { return s.Watches(configMaps.GVR).Long > 0 })
}
