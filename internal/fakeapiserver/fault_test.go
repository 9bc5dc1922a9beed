package fakeapiserver

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"spillway/internal/fakeapiserver/rawclient"
)

// fresh is a server with one config map n/a at RV 2 and an open watch behind it.
func fresh(t *testing.T) (*Server, *rawclient.Watcher) {
	t.Helper()
	s := server(t, Options{BookmarkPeriod: 2 * time.Millisecond})
	s.Create(ConfigMaps, "n", "a")
	return s, watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=2")
}

func TestHoldWatch(t *testing.T) {
	s, _ := fresh(t)
	marked := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=2&allowWatchBookmarks=1")
	settled(t, s, ConfigMaps, 2)
	s.HoldWatch(ConfigMaps)
	s.Bump()
	s.Create(ConfigMaps, "n", "b")
	if l := get(t, s, "/api/v1/configmaps"); l.RV != 4 || len(l.Items) != 2 {
		t.Errorf("LIST must see what the watch does not: %s", l.Body)
	}
	// a new watch has it from history
	expect(t, watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=2"), "ADDED n/b 4")
	expect(t, marked, "BOOKMARK 3") // never 4: b was not sent
	s.ReleaseWatch(ConfigMaps)
	seen, err := marked.Until(deadline(t), func(e rawclient.WatchEvent) bool { return e.RV == 4 })
	if err != nil || seen[len(seen)-1].Type != "ADDED" {
		t.Errorf("after the release: %v %v", seen, err)
	}
}

func TestDelayWatch(t *testing.T) {
	s, w := fresh(t)
	settled(t, s, ConfigMaps, 1)
	s.DelayWatch(ConfigMaps, time.Hour)
	s.Create(ConfigMaps, "n", "b")
	if l := get(t, s, "/api/v1/configmaps?resourceVersion=0"); l.RV != 3 || len(w.Events()) > 0 {
		t.Errorf("LIST must see what the watch does not: %s %v", l.Body, w.Events())
	}
	s.DelayWatch(ConfigMaps, 0)
	expect(t, w, "ADDED n/b 3")
	s.DelayWatch(ConfigMaps, time.Millisecond)
	s.Create(ConfigMaps, "n", "c")
	expect(t, w, "ADDED n/c 4")
	s.DelayWatch(ConfigMaps, time.Hour) // its timer must not outlive Close
	s.Create(ConfigMaps, "n", "d")
}

func TestDropAndCutWatches(t *testing.T) {
	s, w := fresh(t)
	other := watch(t, s, "/api/v1/pods?watch=1")
	s.DropWatches(ConfigMaps)
	ends(t, w, rawclient.Ended)
	again := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	expect(t, again, "ADDED n/a 2")
	s.CutWatches(ConfigMaps)
	ends(t, again, rawclient.Cut)
	watched(t, s, ConfigMaps, 0)
	if n := s.OpenWatches(Pods); n.Long != 1 || s.Watches(ConfigMaps) != (Count{Long: 2}) {
		t.Errorf("open pod watches: %+v, config map watches so far: %+v", n, s.Watches(ConfigMaps))
	}
	s.Create(Pods, "n", "p")
	expect(t, other, "ADDED n/p 3")
}

// A watch whose client does not read ends all the same.
func TestCutStalledWatch(t *testing.T) {
	s := server(t, Options{})
	w := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1", rawclient.ReceiveBuffer(4<<10))
	w.Stall()
	for i := range 10 { // more than the kernel takes for a client that does not read
		s.Create(ConfigMaps, "n", fmt.Sprint(i), WithPadding(1<<20))
	}
	blocked := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for st := range s.tables[ConfigMaps].streams {
			if !st.writing.Load() {
				return false
			}
		}
		return true
	}
	for !blocked() {
		time.Sleep(time.Millisecond)
	}
	s.CutWatches(ConfigMaps)
	watched(t, s, ConfigMaps, 0)
	w.Resume()
	ends(t, w, rawclient.Cut)
}

func TestForgetHistory(t *testing.T) {
	s, w := fresh(t)
	s.Create(Pods, "n", "p")
	s.Create(ConfigMaps, "n", "b")
	expect(t, w, "ADDED n/b 4")
	s.ForgetHistory(ConfigMaps)
	ends(t, w, rawclient.Ended)
	expect(t, watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=3"),
		"ERROR 410 Expired: too old resource version: 3 (4)")
	expect(t, watch(t, s, "/api/v1/pods?watch=1&resourceVersion=2"), "ADDED n/p 3")
	wantKeys(t, get(t, s, "/api/v1/configmaps?resourceVersion=3&resourceVersionMatch=Exact"), "n/a") // storage still knows
	at := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=4")
	s.Delete(ConfigMaps, "n", "a")
	expect(t, at, "DELETED n/a 5")
}

func TestRestart(t *testing.T) {
	for name, o := range map[string]Options{"http": {}, "https": {TLS: true}, "h2": {HTTP2: true}} {
		t.Run(name, func(t *testing.T) {
			s := server(t, o)
			s.Create(ConfigMaps, "n", "a")
			client := s.Client()
			w := watch(t, s, "/api/v1/configmaps?watch=1", rawclient.Through(client))
			expect(t, w, "ADDED n/a 2")
			s.Bump()
			s.Restart()
			ends(t, w, rawclient.Cut)
			expect(t, watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=2"),
				"ERROR 410 Expired: too old resource version: 2 (3)")
			wantKeys(t, get(t, s, "/api/v1/configmaps"), "n/a")
			if o.HTTP2 && s.Requests()[0].Remote == "" {
				t.Error("no remote address")
			}
			client.CloseIdleConnections()
		})
	}
}

func TestRestore(t *testing.T) {
	s, w := fresh(t)
	snap := s.Snapshot()
	s.Update(ConfigMaps, "n", "a", WithData("k", "new"))
	s.Create(ConfigMaps, "n", "b")
	expect(t, w, "MODIFIED n/a 3", "ADDED n/b 4")
	s.RestoreFrom(snap)
	ends(t, w, rawclient.Cut)
	if l := get(t, s, "/api/v1/configmaps"); l.RV != 2 || len(l.Items) != 1 || l.Items[0].RV != 2 {
		t.Errorf("after the restore: %s", l.Body)
	}
	s.Create(ConfigMaps, "n", "c")
	if o, _ := s.Get(ConfigMaps, "n", "c"); o.RV != 3 {
		t.Errorf("revisions go on from the snapshot: %d", o.RV)
	}
	s.RestoreFrom(snap)
	wantKeys(t, get(t, s, "/api/v1/configmaps"), "n/a")
}

func TestReshape(t *testing.T) {
	s, w := fresh(t)
	s.Reshape(ConfigMaps, WithAnnotation("shape", "new"))
	ends(t, w, rawclient.Ended)
	o, _ := s.Get(ConfigMaps, "n", "a")
	if o.RV != 2 || fieldValue(o.tree(), "metadata.annotations.shape") != "new" || s.Revision() != 2 {
		t.Errorf("reshaped: %s", o.Raw)
	}
}

func TestDownHangUp(t *testing.T) {
	s, w := fresh(t)
	s.Down()
	ends(t, w, rawclient.Cut)
	refused := rawclient.Watch(deadline(t), s.URL, "/api/v1/configmaps?watch=1")
	ends(t, refused, rawclient.Unreachable)
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, get(t, s, "/api/v1/configmaps"), "n/a")

	s.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if l, err := rawclient.List(ctx, s.URL, "/api/v1/configmaps"); err == nil {
		t.Errorf("a hanging server answered: %d", l.Status)
	}
	waiting := rawclient.Watch(deadline(t), s.URL, "/api/v1/configmaps?watch=1")
	defer waiting.Close()
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	expect(t, waiting, "ADDED n/a 2")
}

func TestFailures(t *testing.T) {
	s, _ := fresh(t)
	s.FailLists(2, http.StatusTooManyRequests)
	s.FailWatches(1, http.StatusServiceUnavailable)
	for range 2 {
		l := get(t, s, "/api/v1/configmaps")
		wantStatus(t, l, 429, "storage is (re)initializing")
		if l.Header.Get("Retry-After") != "1" {
			t.Errorf("no Retry-After: %v", l.Header)
		}
	}
	wantKeys(t, get(t, s, "/api/v1/configmaps"), "n/a")
	if end := ends(t, watch(t, s, "/api/v1/configmaps?watch=1"), rawclient.Rejected); end.Status != 503 {
		t.Errorf("want 503, got %v", end)
	}
	expect(t, watch(t, s, "/api/v1/configmaps?watch=1"), "ADDED n/a 2")
	if s.Lists(ConfigMaps) != 3 {
		t.Errorf("lists: %d", s.Lists(ConfigMaps))
	}
}

func TestSuppressBookmarks(t *testing.T) {
	s := server(t, Options{BookmarkPeriod: 2 * time.Millisecond})
	s.SuppressBookmarks(ConfigMaps, true)
	maps := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1&allowWatchBookmarks=1")
	s.Bump()
	s.Progress()
	secrets := watch(t, s, "/api/v1/secrets?watch=1&resourceVersion=1&allowWatchBookmarks=1")
	expect(t, secrets, "BOOKMARK 2", "BOOKMARK 2", "BOOKMARK 2")
	expect(t, watch(t, s, "/api/v1/configmaps?watch=1&allowWatchBookmarks=1"), "BOOKMARK 2 end")
	s.Bump()
	s.Progress()
	s.SuppressBookmarks(ConfigMaps, false)
	expect(t, maps, "BOOKMARK 3")
}

func TestStallReads(t *testing.T) {
	s, w := fresh(t)
	s.StallReads(ConsistentReads)
	wantKeys(t, get(t, s, "/api/v1/configmaps?resourceVersion=0"), "n/a")
	wantBody(t, get(t, s, "/api/v1/configmaps?timeout=10ms"), 504,
		`{"metadata":{},"status":"Failure","message":"Timeout: request did not complete `+
			`within the allotted timeout","reason":"Timeout","details":{},"code":504}`+"\n")
	list := watch(t, s, "/api/v1/configmaps?watch=1") // the head comes at once
	s.Create(ConfigMaps, "n", "b")
	expect(t, w, "ADDED n/b 3")
	late := watch(t, s, "/api/v1/configmaps?watch=1&timeoutSeconds=1")
	expect(t, late, "ERROR 500 InternalError: context deadline exceeded")
	s.StallReads(AllReads)
	if l := get(t, s, "/api/v1/configmaps?resourceVersion=0&timeout=10ms"); l.Status != 504 {
		t.Errorf("an any-age read passed: %s", l.Body)
	}
	s.StallReads(NoReads)
	expect(t, list, "ADDED n/a 2", "ADDED n/b 3")
}
