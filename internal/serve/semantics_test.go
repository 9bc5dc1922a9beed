package serve

import (
	"fmt"
	"net/http"
	"testing"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
)

// watchListQueries ask for a watch-list in every way, and for longer and shorter than a proof may
// take.
func watchListQueries() (all []string) {
	for _, version := range []string{"", "&resourceVersion=0", "&resourceVersion=1"} {
		for _, timeout := range []string{"", "&timeoutSeconds=2", "&timeoutSeconds=4", "&timeoutSeconds=6",
			"&timeoutSeconds=7"} {
			all = append(all, "?watch=1&sendInitialEvents=true&allowWatchBookmarks=1"+
				"&resourceVersionMatch=NotOlderThan"+version+timeout)
		}
	}
	return all
}

// In front of every version a watch-list gets the same answer: the state, not older than the
// request where that asks for it, and its end bookmark, which is compressed only if upstream's is.
func TestWatchListsAreTheSameInFrontOfEveryVersion(t *testing.T) {
	for _, version := range []fakeapiserver.Kubernetes{fakeapiserver.Kubernetes133, fakeapiserver.Kubernetes136,
		fakeapiserver.Kubernetes137} {
		t.Run(version.Version, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, up: fakeapiserver.Options{Kubernetes: version}})
			rv := r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
			r.mirrored(configMaps)
			for round := range 3 {
				r.up.Create(fakeapiserver.Pods, "n", fmt.Sprintf("elsewhere-%d", round))
				for _, query := range watchListQueries() {
					w := r.watch(mapsPath+query, rawclient.Header("Accept-Encoding", "gzip"))
					_, head, _ := w.Head(deadline(t))
					if got := head.Get("Content-Encoding"); (got == "gzip") == version.PlainWatchLists {
						t.Errorf("%s: encoded as %q", query, got)
					}
					expect(t, w, fmt.Sprintf("ADDED n/a %d", rv))
					until(t, w, isEnd)
					w.Close()
				}
			}
			if n := r.up.OpenWatches(fakeapiserver.ConfigMaps).Long; n != 1 {
				t.Errorf("%d long watches upstream, want the mirror's", n)
			}
		})
	}
}

// With upstream's semantics it is upstream that refuses a watch-list, each time.
func TestUpstreamSemanticsRefuseAsUpstream(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}, ofUpstream: true,
		up: fakeapiserver.Options{Kubernetes: fakeapiserver.Kubernetes133}})
	rv := r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	for range 3 {
		for _, query := range watchListQueries() {
			own, err := rawclient.List(deadline(t), r.up.URL, mapsPath+query)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.list(mapsPath + query); got.Status != http.StatusUnprocessableEntity ||
				string(got.Body) != string(own.Body) {
				t.Errorf("%s: %d %s, want %s", query, got.Status, got.Body, own.Body)
			}
		}
	}
	w := r.watch(mapsPath + "?watch=1&allowWatchBookmarks=1&timeoutSeconds=7")
	expect(t, w, fmt.Sprintf("ADDED n/a %d", rv))
	r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("k", "v"))
	if e, err := w.Next(deadline(t)); err != nil || e.End {
		t.Errorf("%v, %v: an end bookmark that upstream does not send", e, err)
	}
}

// While proofs fail, watch-lists are to be sent again, not to an upstream that refuses them.
func TestWatchListsAwaitProofs(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps},
		up: fakeapiserver.Options{Kubernetes: fakeapiserver.Kubernetes133}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	rv := r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("k", "v"))
	target := mapsPath + watchListQueries()[0]
	for range 3 { // at first after the time of a proof, then at once
		got := r.list(target)
		if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	eventually(t, "a watch-list from memory", func() bool {
		w := rawclient.Watch(deadline(t), r.url, target)
		defer w.Close()
		if code, _, err := w.Head(deadline(t)); err != nil || code != http.StatusOK {
			return false
		}
		expect(t, w, fmt.Sprintf("ADDED n/a %d", rv))
		until(t, w, isEnd)
		return true
	})
}
