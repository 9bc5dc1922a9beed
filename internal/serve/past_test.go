package serve

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/cache"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// pastRig is a proxy that begins when upstream has a history already.
func pastRig(t *testing.T, o rigOptions, history func(up *fakeapiserver.Server)) *rig {
	t.Helper()
	if o.up.ProofDelay == 0 {
		o.up.ProofDelay = 10 * time.Millisecond
	}
	if o.backfill == 0 {
		o.backfill = 8
	}
	o.mirrors = []*object.Resource{configMaps}
	up := fakeapiserver.New(o.up)
	history(up)
	return rigOf(t, up, o)
}

// backfills are the requests that were sent upstream to tell of the past, by verb.
func (r *rig) backfills(verb string) (sent []fakeapiserver.Request) {
	for _, q := range r.up.RequestsFor(fakeapiserver.ConfigMaps, verb) {
		if strings.HasSuffix(q.Header.Get("User-Agent"), " backfill") {
			sent = append(sent, q)
		}
	}
	return sent
}

// A watch that resumes from before the beginning of the log receives the events up to there in
// upstream's bytes, and goes on from the log.
func TestResumeFromThePast(t *testing.T) { eachWay(t, testResumeFromThePast) }

func testResumeFromThePast(t *testing.T, goroutines bool) {
	var from uint64
	r := pastRig(t, rigOptions{goroutines: goroutines}, func(up *fakeapiserver.Server) {
		up.Create(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithLabel("app", "x"))
		from = up.Revision()
		up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithLabel("app", "y")) // from+1
		up.Create(fakeapiserver.ConfigMaps, "m", "b", fakeapiserver.WithLabel("app", "x"))
		up.Delete(fakeapiserver.ConfigMaps, "m", "b")
		up.Create(fakeapiserver.ConfigMaps, "n", "c") // from+4
	})
	for query, want := range map[string][]string{
		"":                               {"MODIFIED n/a +1", "ADDED m/b +2", "DELETED m/b +3", "ADDED n/c +4"},
		"&labelSelector=app=x":           {"DELETED n/a +1", "ADDED m/b +2", "DELETED m/b +3"},
		"&fieldSelector=metadata.name=c": {"ADDED n/c +4"},
		"&fieldSelector=metadata.namespace=m&allowWatchBookmarks=1": {"ADDED m/b +2", "DELETED m/b +3"},
		"&fieldSelector=metadata.name!=c&labelSelector=app!=y":      {"DELETED n/a +1"},
		"&timeoutSeconds=1000&sendInitialEvents=false&resourceVersionMatch=NotOlderThan": {"MODIFIED n/a +1", "ADDED m/b +2",
			"DELETED m/b +3", "ADDED n/c +4"},
	} {
		for i, one := range want {
			kind, rest, _ := strings.Cut(one, " +")
			var n uint64
			_, _ = fmt.Sscan(rest, &n)
			want[i] = fmt.Sprintf("%s %d", kind, from+n)
		}
		target := fmt.Sprintf("%s?watch=1&resourceVersion=%d%s", mapsPath, from, query)
		direct := rawclient.Watch(deadline(t), r.up.URL, target)
		t.Cleanup(direct.Close)
		w := r.watch(target)
		expect(t, w, want...)
		for i := range want {
			if e, err := direct.Next(deadline(t)); err != nil || string(e.Line) != string(w.Events()[i].Line) {
				t.Errorf("%s: upstream says %s (%v), not %s", query, e.Line, err, w.Events()[i].Line)
			}
		}
		w.Close()
		direct.Close()
	}
	w := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, from+3))
	expect(t, w, fmt.Sprintf("ADDED n/c %d", from+4))
	eventually(t, "the log to go on",
		func() bool { return r.metric("spillway_backfilled_watches_total", "resource=configmaps") >= 1 })
	next := r.up.Create(fakeapiserver.ConfigMaps, "n", "d")
	expect(t, w, fmt.Sprintf("ADDED n/d %d", next))
	watches := r.backfills("watch")
	if lists := r.backfills("list"); len(lists) != len(watches) || len(watches) < 3 { // as many as there are selectors
		t.Errorf("%d lists and %d watches", len(lists), len(watches))
	}
	for _, q := range watches {
		if q.Query.Get("timeoutSeconds") != "3" || q.Query.Get("allowWatchBookmarks") != "true" {
			t.Errorf("upstream was asked %v", q.Query)
		}
	}
}

// Over HTTP/2, too, where many watches share a connection.
func TestResumeFromThePastOverHTTP2(t *testing.T) {
	var from uint64
	r := pastRig(t, rigOptions{}, func(up *fakeapiserver.Server) {
		from = up.Create(fakeapiserver.ConfigMaps, "n", "a")
		up.Create(fakeapiserver.ConfigMaps, "n", "b")
		up.Delete(fakeapiserver.ConfigMaps, "n", "a")
	})
	client := overHTTP2(t, 1<<20)
	for range 3 {
		w := r.watch2(client, fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, from))
		expect(t, w, fmt.Sprintf("ADDED n/b %d", from+1), fmt.Sprintf("DELETED n/a %d", from+2))
	}
	r.up.Create(fakeapiserver.ConfigMaps, "n", "c")
	w := r.watch2(client, fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, from+1))
	expect(t, w, fmt.Sprintf("DELETED n/a %d", from+2), fmt.Sprintf("ADDED n/c %d", from+3))
}

// A watch that resumes from before upstream's own history is refused in upstream's words.
func TestResumeFromAForgottenPast(t *testing.T) {
	var from, floor uint64
	r := pastRig(t, rigOptions{}, func(up *fakeapiserver.Server) {
		from = up.Create(fakeapiserver.ConfigMaps, "n", "a")
		floor = up.Create(fakeapiserver.ConfigMaps, "n", "b")
		up.ForgetHistory(fakeapiserver.ConfigMaps)
		up.Create(fakeapiserver.ConfigMaps, "n", "c")
	})
	w := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, from))
	expect(t, w, fmt.Sprintf("ERROR 410 Expired: too old resource version: %d (%d)", from, floor))
	over(t, w, rawclient.Ended)
	expect(t, r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, floor)), fmt.Sprintf("ADDED n/c %d", floor+1))
	r.ended(configMaps, watch.EndResourceVersionExpired, 1)
	if n := r.metric("spillway_backfill_failures_total", "reason=resource_version_expired"); n != 1 {
		t.Errorf("%v refusals", n)
	}
}

// The log has no events from within a gap of the mirror; a backfill gets them from upstream. A void
// history stays void.
func TestResumeInsideASeam(t *testing.T) {
	r := pastRig(t, rigOptions{}, func(up *fakeapiserver.Server) { up.Create(fakeapiserver.ConfigMaps, "n", "a") })
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	inside := r.up.Create(fakeapiserver.ConfigMaps, "n", "came-and-went")
	gone := r.up.Delete(fakeapiserver.ConfigMaps, "n", "came-and-went")
	b := r.up.Create(fakeapiserver.ConfigMaps, "n", "b")
	r.mirrors[configMaps.GVR].Relist("to have a gap")
	r.mirrored(configMaps)
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	w := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, inside))
	expect(t, w, fmt.Sprintf("DELETED n/came-and-went %d", gone), fmt.Sprintf("ADDED n/b %d", b))
	next := r.up.Create(fakeapiserver.ConfigMaps, "n", "c")
	expect(t, w, fmt.Sprintf("ADDED n/c %d", next))

	snapshot := r.up.Snapshot()
	r.up.Create(fakeapiserver.ConfigMaps, "n", "of-another-past")
	r.mirrored(configMaps)
	r.up.RestoreFrom(snapshot)
	r.mirrors[configMaps.GVR].Relist("restored")
	until(t, w, func(e rawclient.WatchEvent) bool { return e.Type == "ERROR" })
	asked := len(r.backfills("list"))
	again := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, inside))
	expect(t, again, fmt.Sprintf("ERROR 410 Expired: too old resource version: %d (%d)", inside, next))
	if len(r.backfills("list")) != asked {
		t.Error("upstream was asked about a history that is void")
	}
}

// A watch that waits too long for its backfill is refused with a 429 instead of a stream, which
// client-go retries without a new list.
func TestResumeWhenManyDo(t *testing.T) {
	var from uint64
	r := pastRig(t, rigOptions{backfill: 1}, func(up *fakeapiserver.Server) {
		from = up.Create(fakeapiserver.ConfigMaps, "n", "a")
		up.Create(fakeapiserver.ConfigMaps, "n", "b")
	})
	r.up.SuppressBookmarks(fakeapiserver.ConfigMaps, true) // so that turns last
	r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d&labelSelector=x", mapsPath, from))
	w := rawclient.Watch(deadline(t), r.url, fmt.Sprintf("%s?watch=1&resourceVersion=%d&labelSelector=y", mapsPath,
		from))
	t.Cleanup(w.Close)
	code, head, err := w.Head(deadline(t))
	if err != nil || code != http.StatusTooManyRequests || head.Get("Retry-After") != "2" {
		t.Errorf("%d %v %v", code, head, err)
	}
	if n := r.metric("spillway_backfill_failures_total", "reason=concurrency_limit"); n != 1 {
		t.Errorf("%v refusals", n)
	}
	if n := r.metric("spillway_watches"); n != 1 {
		t.Errorf("%v streams", n)
	}
}

// A watch that resumes while upstream is unreachable is kept, and receives its events once upstream
// is reachable.
func TestResumeWhileUpstreamIsAway(t *testing.T) {
	var from uint64
	r := pastRig(t, rigOptions{}, func(up *fakeapiserver.Server) {
		from = up.Create(fakeapiserver.ConfigMaps, "n", "a")
		up.Create(fakeapiserver.ConfigMaps, "n", "b")
	})
	r.up.Down()
	w := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, from))
	if err := r.up.Up(); err != nil {
		t.Fatal(err)
	}
	expect(t, w, fmt.Sprintf("ADDED n/b %d", from+1))
	c := r.up.Create(fakeapiserver.ConfigMaps, "n", "c")
	expect(t, w, fmt.Sprintf("ADDED n/c %d", c))
}

// Whatever happened and wherever the mirror begins: a watch from any resourceVersion is, byte for
// byte, the one that upstream serves.
func TestResumeIsUpstreamsOwnWatch(t *testing.T) { eachWay(t, testResumeIsUpstreamsOwnWatch) }

func testResumeIsUpstreamsOwnWatch(t *testing.T, goroutines bool) {
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 2)) // #nosec G404 -- reproducible
		act := func(up *fakeapiserver.Server) {
			namespace, name := fmt.Sprint("n", random.IntN(2)), fmt.Sprint("m", random.IntN(5))
			label := fakeapiserver.WithLabel("app", fmt.Sprint(random.IntN(3)))
			_, there := up.Get(fakeapiserver.ConfigMaps, namespace, name)
			switch {
			case !there:
				up.Create(fakeapiserver.ConfigMaps, namespace, name, label)
			case random.IntN(4) == 0:
				up.Delete(fakeapiserver.ConfigMaps, namespace, name)
			default:
				up.Update(fakeapiserver.ConfigMaps, namespace, name, label,
					fakeapiserver.WithData("k", fmt.Sprint(random.Uint64())))
			}
		}
		var first uint64
		limits := cache.HistoryLimits{HistoryBytes: 256 << 10}
		r := pastRig(t, rigOptions{goroutines: goroutines, limits: &limits, backfill: 1 + random.IntN(3)},
			func(up *fakeapiserver.Server) {
				first = up.Revision()
				for range 30 + random.IntN(50) {
					act(up)
				}
			})
		queries := []string{"", "&labelSelector=app=1", "&labelSelector=app!=2", "&fieldSelector=metadata.name=m3",
			"&fieldSelector=metadata.namespace=n1"}
		var clients sync.WaitGroup
		last := r.up.Revision()
		for range 20 {
			target := fmt.Sprintf("%s?watch=1&resourceVersion=%d%s", mapsPath, first+random.Uint64N(last-first+1),
				queries[random.IntN(len(queries))])
			after := time.Duration(random.IntN(30)) * time.Millisecond
			clients.Go(func() {
				time.Sleep(after)
				direct, through := rawclient.Watch(deadline(t), r.up.URL, target),
					rawclient.Watch(deadline(t), r.url, target)
				defer direct.Close()
				defer through.Close()
				for {
					want, err := direct.Next(deadline(t))
					if err != nil {
						t.Error(err)
						return
					}
					got, err := through.Next(deadline(t))
					if err != nil || string(got.Line) != string(want.Line) {
						t.Errorf("seed %d: %s: got %q %v, want %q", seed, target, got, err, want)
						return
					}
					if want.Key == "n1/m3" && strings.Contains(string(want.Raw), `"the-end"`) {
						return
					}
				}
			})
		}
		for range 40 {
			act(r.up)
			time.Sleep(time.Millisecond)
		}
		clients.Go(func() {
			// The last event is one that every selector sees.
			time.Sleep(100 * time.Millisecond)
			if _, there := r.up.Get(fakeapiserver.ConfigMaps, "n1", "m3"); there {
				r.up.Delete(fakeapiserver.ConfigMaps, "n1", "m3")
			}
			r.up.Create(fakeapiserver.ConfigMaps, "n1", "m3", fakeapiserver.WithLabel("app", "1"),
				fakeapiserver.WithData("k", "the-end"))
		})
		clients.Wait()
	}
}
