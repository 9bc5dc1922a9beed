package serve

import (
	"testing"

	internal "k8s.io/apiserver/pkg/apis/audit"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// has reports that a series with these labels is there, whatever its value.
func (r *rig) has(name string, labels ...string) bool {
	r.t.Helper()
	return len(r.series(name, labels...)) > 0
}

// A counter of what has never happened to a resource is 0 and not absent, from the first request
// for the resource on: an alert on the increase of a counter that appears with its first count
// would miss that count.
func TestCountersAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.mirrored(configMaps)
	if r.has("spillway_watch_terminations_total") {
		t.Error("of a resource that nobody has asked for")
	}
	r.list(mapsPath + "?resourceVersion=0")
	for _, reason := range watch.EndReasons {
		if !r.has("spillway_watch_terminations_total", "resource=configmaps", "reason="+string(reason)) {
			t.Errorf("no watch_terminations_total by %s", reason)
		}
	}
	for _, name := range []string{"consistent_lists", "shared_lists", "not_ready_rejected_requests",
		"freshness_rejected_requests",
		"stale_responses", "max_staleness_exceeded", "backfilled_watches", "backfill_failures"} {
		if name = "spillway_" + name + "_total"; !r.has(name, "resource=configmaps") || r.sum(name) != 0 {
			t.Errorf("%s: there: %t, %v", name, r.has(name, "resource=configmaps"), r.sum(name))
		}
	}
}

// What is sent on a watch is seen while it lasts, and not counted twice once it has ended.
func TestSentBytesAreCountedOnceWhileAWatchLasts(t *testing.T) { eachWay(t, testSentBytes) }

func testSentBytes(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	r.mirrored(configMaps)
	w := r.watch(mapsPath + "?watch=1&resourceVersion=0")
	sent := func() float64 { return r.metric("spillway_watch_sent_bytes_total", "resource=configmaps") }
	for _, name := range []string{"a", "b"} {
		before := sent()
		r.up.Create(fakeapiserver.ConfigMaps, "n", name)
		until(t, w, func(e rawclient.WatchEvent) bool { return e.Type == "ADDED" })
		eventually(t, "more to have been sent on an open watch", func() bool { return sent() > before })
	}
	open := sent()
	w.Close()
	r.ended(configMaps, watch.EndClientClosed, 1)
	eventually(t, "the watch to be counted out", func() bool { return r.metric("spillway_watches") == 0 })
	if closed := sent(); closed != open {
		t.Errorf("%v bytes once it has ended, %v before", closed, open)
	}
}

// The duration of a LIST is observed under the source of its answer.
func TestListDurations(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a") // too few to be worth a proof
	r.mirrored(configMaps)
	r.list(mapsPath + "?resourceVersion=0")
	r.recentList("")
	r.showsListDurations(map[string]float64{listFromMemory: 1, listFromUpstream: 1, listFromSharedAnswer: 0})
}

// A LIST that cannot be put on record is observed as upstream's, which answers it.
func TestListDurationsOfAnswersThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	r, j := audited(t, internal.LevelMetadata, true, rigOptions{access: true})
	r.list(inN+"?resourceVersion=0", bearing("alice"))
	j.fill(true)
	if got := r.list(inN+"?resourceVersion=0", bearing("alice")); !upstreams(got.Header) {
		t.Fatalf("answered here without a record: %v", got.Header)
	}
	r.showsListDurations(map[string]float64{listFromMemory: 1, listFromUpstream: 1, listFromSharedAnswer: 0})
}

// showsListDurations checks how many LISTs were observed, by the source of their answers.
func (r *rig) showsListDurations(counts map[string]float64) {
	r.t.Helper()
	for source, want := range counts {
		if n := r.metric("spillway_list_duration_seconds", "source="+source); n != want {
			r.t.Errorf("%v from %s, want %v", n, source, want)
		}
	}
}
