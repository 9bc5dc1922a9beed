package fakeapiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver/rawclient"
)

// The matrix of W-100: where a watch starts. Object a is at RV 2, b at 3; the store is at 4.
func TestWatchStarts(t *testing.T) {
	const notOlder = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	state := []string{"ADDED n/a 2", "ADDED n/b 3"}
	end := append(append([]string{}, state...), "BOOKMARK 4 end")
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", state},
		{"allowWatchBookmarks=true", end},
		{"resourceVersion=0", state},
		{"resourceVersion=0&allowWatchBookmarks=1", end},
		{"resourceVersion=2", state[1:]},
		{"resourceVersion=4", nil},
		{notOlder, state},
		{notOlder + "&allowWatchBookmarks=true", end},
		{notOlder + "&allowWatchBookmarks=true&resourceVersion=1", end},
		{notOlder + "&allowWatchBookmarks=true&resourceVersion=0", end},
		{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan", nil},
		{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0", nil},
		{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=2", state[1:]},
		{"limit=1&continue=abc&resourceVersion=1&fieldSelector=metadata.name%3Db", state[1:]},
	} {
		t.Run(tt.query, func(t *testing.T) {
			s := server(t, Options{})
			s.Create(ConfigMaps, "n", "a")
			s.Create(ConfigMaps, "n", "b")
			s.Bump()
			s.Progress() // or an any-age state would claim 3
			w := watch(t, s, "/api/v1/configmaps?watch=true&"+tt.query)
			expect(t, w, tt.want...)
			settled(t, s, ConfigMaps, 1)
			s.Update(ConfigMaps, "n", "b", WithData("k", "v"))
			expect(t, w, "MODIFIED n/b 5")
		})
	}
}

// settled waits until n watches of a resource have begun. The head comes before the start is fixed
// (W-102), so a test that writes something which a watch must see live, and not as state or
// history, has to wait for this.
func settled(t *testing.T, s *Server, gvr schema.GroupVersionResource, n int) {
	t.Helper()
	if err := s.Await(deadline(t), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		begun := 0
		for st := range s.tables[gvr].streams {
			if st.started {
				begun++
			}
		}
		return begun == n
	}); err != nil {
		t.Fatal(err)
	}
}

// The table of W-103, with the transitions in history and live.
func TestWatchTransitions(t *testing.T) {
	s := server(t, Options{})
	start := s.Revision()
	path := func(more string) string {
		return fmt.Sprintf("/api/v1/configmaps?watch=1&resourceVersion=%d%s", start, more)
	}
	live := watch(t, s, path("&labelSelector=app%3Dx"))
	everything := watch(t, s, path(""))
	s.Create(ConfigMaps, "n", "s", WithLabel("app", "y"), WithData("k", "v"))
	s.Update(ConfigMaps, "n", "s", WithLabel("app", "x"))
	s.Update(ConfigMaps, "n", "s", WithData("k", "2"))
	s.Update(ConfigMaps, "n", "s", WithLabel("app", "z"), WithData("k", "3"))
	s.Update(ConfigMaps, "n", "s", WithData("k", "4"))
	s.Update(ConfigMaps, "n", "s", WithLabel("app", "x"))
	s.Delete(ConfigMaps, "n", "s")
	replay := watch(t, s, path("&labelSelector=app%3Dx"))
	for name, w := range map[string]*rawclient.Watcher{"live": live, "replay": replay} {
		t.Run(name, func(t *testing.T) {
			expect(t, w, "ADDED n/s 3", "MODIFIED n/s 4", "DELETED n/s 5", "ADDED n/s 7", "DELETED n/s 8")
			gone := string(w.Events()[2].Raw)
			if !strings.Contains(gone, `"app":"x"`) || !strings.Contains(gone, `"data":{"k":"2"}`) {
				t.Errorf("DELETED must show the last version that matched: %s", gone)
			}
		})
	}
	expect(t, everything, "ADDED n/s 2", "MODIFIED n/s 3", "MODIFIED n/s 4", "MODIFIED n/s 5", "MODIFIED n/s 6",
		"MODIFIED n/s 7", "DELETED n/s 8")
}

func TestWatchErrors(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	s.ForgetHistory(ConfigMaps)
	old := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1")
	ends(t, old, rawclient.Ended)
	if line := string(old.Events()[0].Line); line != `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1",`+
		`"metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}`+"\n" {
		t.Errorf("too old: %s", line)
	}
	future := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=1000&sendInitialEvents=true"+
		"&resourceVersionMatch=NotOlderThan")
	expect(t, future, "ERROR 504 Timeout: Timeout: Too large resource version: 1000, current: 2")
	ends(t, future, rawclient.Ended)

	for path, status := range map[string]int{
		"/api/v1/configmaps?watch=1&resourceVersion=abc":      500,
		"/api/v1/configmaps?watch=1&fieldSelector=x%3D1":      400,
		"/api/v1/configmaps?watch=1&sendInitialEvents=true":   422,
		"/api/v1/configmaps?watch=1&limit=abc":                400,
		"/api/v1/componentstatuses?watch=1&resourceVersion=0": 405,
		"/apis/foo.example/v1/foos?watch=1&resourceVersion=0": 404,
		"/api/v1/namespaces/n/foos?watch=1&resourceVersion=0": 404,
	} {
		w := watch(t, s, path)
		if end := ends(t, w, rawclient.Rejected); end.Status != status {
			t.Errorf("%s: want %d, got %d %s", path, status, end.Status, end.Body)
		}
	}
}

// A plain watch from the future is silent and swallows what comes up to there (W-106).
func TestWatchFromTheFuture(t *testing.T) {
	s := server(t, Options{})
	w := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=3")
	s.Create(ConfigMaps, "n", "a")
	s.Create(ConfigMaps, "n", "b")
	s.Create(ConfigMaps, "n", "c")
	expect(t, w, "ADDED n/c 4")
}

func TestWatchDurations(t *testing.T) {
	s := server(t, Options{})
	ends(t, watch(t, s, "/api/v1/configmaps?watch=1&timeoutSeconds=-1"), rawclient.Ended)
	ends(t, watch(t, s, "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0"), rawclient.Ended)
}

func TestBookmarks(t *testing.T) {
	s := server(t, Options{BookmarkPeriod: 5 * time.Millisecond})
	pods := watch(t, s, "/api/v1/pods?watch=1&allowWatchBookmarks=1&resourceVersion=1")
	silent := watch(t, s, "/api/v1/pods?watch=1&resourceVersion=1")
	s.Bump()
	s.Progress() // without it a quiet resource does not move
	expect(t, pods, "BOOKMARK 2", "BOOKMARK 2")
	if raw := string(pods.Events()[0].Raw); raw != `{"kind":"Pod","apiVersion":"v1",`+
		`"metadata":{"resourceVersion":"2"},"spec":{"containers":null},"status":{}}` {
		t.Errorf("bookmark: %s", raw)
	}
	s.Create(Pods, "n", "a")
	if _, err := pods.Until(deadline(t), func(e rawclient.WatchEvent) bool { return e.Type == "ADDED" }); err != nil {
		t.Fatal(err)
	}
	expect(t, pods, "BOOKMARK 3")
	expect(t, silent, "ADDED n/a 3")

	widgets := watch(t, s, "/apis/example.com/v1/widgets?watch=1&allowWatchBookmarks=1")
	expect(t, widgets, "BOOKMARK 3 end")
	if raw := string(widgets.Events()[0].Raw); raw != `{"apiVersion":"example.com/v1","kind":"Widget",`+
		`"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"3"}}` {
		t.Errorf("bookmark of a custom resource: %s", raw)
	}
}

// A watch with timeoutSeconds=3 gets a bookmark before its end: the proof of D7. The LIST before it
// makes the cache current.
func TestProofWatch(t *testing.T) {
	s := server(t, Options{ProofDelay: time.Millisecond})
	client := s.Client()
	s.Bump()
	proved := false
	// on a slow machine three seconds may not do, and net/http may let go of the connection
	for ctx := deadline(t); !proved && ctx.Err() == nil; {
		if l := get(t, s, "/api/v1/secrets?limit=1", rawclient.Through(client)); l.RV != 2 {
			t.Fatalf("the probe says %d", l.RV)
		}
		w := watch(t, s, "/api/v1/secrets?watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=3",
			rawclient.Through(client))
		e, err := w.Next(ctx)
		probes, proofs := s.RequestsFor(Secrets, "list"), s.RequestsFor(Secrets, "watch")
		proved = err == nil && e.String() == "BOOKMARK 2" && probes[len(probes)-1].Remote == proofs[len(proofs)-1].Remote
	}
	if n := s.Watches(Secrets); !proved || n.Proof == 0 || n.Long > 0 {
		t.Errorf("proved on the connection of the probe: %v, counted %+v", proved, n)
	}
}

func TestGzipOfWatchLists(t *testing.T) {
	s := server(t, Options{})
	s.Create(ConfigMaps, "n", "a")
	accept := rawclient.Header("Accept-Encoding", "gzip")
	w := watch(t, s, "/api/v1/configmaps?watch=1&allowWatchBookmarks=1", accept)
	if _, h, _ := w.Head(deadline(t)); h.Get("Content-Encoding") != "gzip" {
		t.Errorf("a watch-list is not compressed: %v", h)
	}
	expect(t, w, "ADDED n/a 2", "BOOKMARK 2 end")
	s.Create(ConfigMaps, "n", "b")
	expect(t, w, "ADDED n/b 3")
	s.DropWatches(ConfigMaps)
	ends(t, w, rawclient.Ended)
	plainWatch := watch(t, s, "/api/v1/configmaps?watch=1&resourceVersion=2", accept)
	if _, h, _ := plainWatch.Head(deadline(t)); h.Get("Content-Encoding") != "" {
		t.Errorf("a plain watch is compressed: %v", h)
	}
}
