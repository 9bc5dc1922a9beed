package upstream

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/fakeapiserver"
)

// behindBookmarkless is an API server behind a proxy that drops bookmarks, and a client that
// reaches it so.
func behindBookmarkless(t *testing.T, what fakeapiserver.BookmarkFault) (*fakeapiserver.Server, *Client) {
	t.Helper()
	s, _ := apiserver(t, fakeapiserver.Options{BookmarkPeriod: 10 * time.Millisecond})
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(fakeapiserver.Bookmarkless(target, nil, what))
	t.Cleanup(proxy.Close)
	config := s.Config()
	config.Host = proxy.URL
	return s, clientFor(t, config)
}

func TestWatchListWithoutItsEndFallsBackToListAndWatch(t *testing.T) {
	for name, what := range map[string]fakeapiserver.BookmarkFault{"end marks": fakeapiserver.DropEndMarks,
		"of watch-lists": fakeapiserver.DropInitial, "all": fakeapiserver.DropBookmarks,
		"end marks and what follows": fakeapiserver.CutAtEndMarks} {
		t.Run(name, func(t *testing.T) {
			s, c := behindBookmarkless(t, what)
			s.Create(configMaps.GVR, "a", "one")
			sink := newRecorder()
			fell := make(chan error, 10)
			wait := 50 * time.Millisecond
			if what == fakeapiserver.CutAtEndMarks {
				wait = time.Hour // it has ended by then
			}
			r := mirror(t, c, configMaps, sink, WithEndMarkWait(wait),
				WithObserver(Observer{OnFallback: func(err error) { fell <- err }}))
			sink.awaitState(t, s, configMaps)
			err := <-fell
			if ended := what == fakeapiserver.CutAtEndMarks; errors.Is(err, errNoEnd) != ended ||
				errors.As(err, new(errNoEndMark)) == ended {
				t.Errorf("fell back since %v", err)
			}
			rv := s.Create(configMaps.GVR, "a", "two")
			sink.awaitEntry(t, fmt.Sprintf("add a/two %d", rv), 0)
			if n := s.Lists(configMaps.GVR); n != 1 {
				t.Errorf("%d LISTs, want 1", n)
			}
			r.Relist("a test") // another complete state needs no other trial
			eventually(t, "another state", func() bool { return r.Status().Replaces == 2 })
			sink.awaitState(t, s, configMaps)
			if n := s.Lists(configMaps.GVR); n != 2 || len(fell) != 0 {
				t.Errorf("%d LISTs and %d more trials, want 2 and none", n, len(fell))
			}
		})
	}
}

// The shipped wait, with a resource that changes all the time: what is no initial event is no
// progress.
func TestEndMarkIsWaitedForAsLongAsInitialEventsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var late atomic.Int64 // nanoseconds from the beginning
		yes := func() bool { return true }
		e := newEndMark(endMarkTimeout, yes, func(error) { late.Store(int64(time.Since(begin))) })
		for range 6 { // a minute on a thin line
			time.Sleep(endMarkTimeout - time.Second)
			e.countEvent(watch.Added, progressBytes)
		}
		if late.Load() != 0 {
			t.Fatalf("given up after %v though the state was arriving", time.Duration(late.Load()))
		}
		arrived := time.Since(begin)
		for late.Load() == 0 {
			e.countEvent(watch.Modified, progressBytes)
			e.countEvent(watch.Added, progressBytes)
			time.Sleep(time.Second)
		}
		if after := time.Duration(late.Load()) - arrived; after > endMarkTimeout+time.Second {
			t.Errorf("given up %v after the last initial event", after)
		}
		seen := newEndMark(endMarkTimeout, yes, func(error) { t.Error("given up after its end was seen") })
		seen.stop()
		seen.stop()
		seen.countEvent(watch.Added, 1)
		time.Sleep(time.Hour)
	})
}

// An upstream that does not answer anything else either is slow. Its watch-list goes on.
func TestEndMarkOfASlowUpstreamIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asked := time.Now(), 0
		var late time.Duration
		e := newEndMark(endMarkTimeout, func() bool { asked++; return asked > 6 },
			func(error) { late = time.Since(begin) })
		defer e.stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if late != 7*endMarkTimeout || asked != 7 {
			t.Errorf("given up after %v and %d questions", late, asked)
		}
	})
}

// What comes while upstream answers the other question counts: the end, or more of the state.
func TestEndMarkThatComesDuringTheQuestion(t *testing.T) {
	for name, comes := range map[string]func(*endMark){
		"the end":  (*endMark).stop,
		"progress": func(e *endMark) { e.countEvent(watch.Added, progressBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e *endMark
				ready := make(chan struct{})
				asked := 0
				answers := func() bool {
					<-ready
					if asked++; asked == 1 {
						comes(e)
					}
					return true
				}
				began := time.Now()
				e = newEndMark(endMarkTimeout, answers, func(error) {
					if time.Since(began) < 2*endMarkTimeout {
						t.Errorf("given up after %v", time.Since(began))
					}
				})
				close(ready)
				defer e.stop()
				time.Sleep(time.Hour)
				synctest.Wait()
			})
		})
	}
}
