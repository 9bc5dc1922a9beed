package serve

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/watch"
)

const mapsPath = "/api/v1/configmaps"

// Every start of W-100 looks like upstream's own, byte for byte; only the versions that bookmarks
// promise may differ.
func TestWatchesAsUpstream(t *testing.T) {
	const notOlder = "&resourceVersionMatch=NotOlderThan"
	const all = 9 // config maps in fill
	for _, c := range []struct {
		query   string
		initial int // events before anything is written, the end bookmark apart
		state   bool
	}{
		{"", all, true},
		{"&resourceVersion=0", all, true},
		{"&resourceVersion=NOW", 0, false},
		{"&resourceVersion=BEFORE", 1, false},
		{"&sendInitialEvents=true" + notOlder, all, true},
		{"&resourceVersion=0&sendInitialEvents=true" + notOlder, all, true},
		{"&resourceVersion=NOW&sendInitialEvents=true" + notOlder, all, true},
		{"&resourceVersion=1&sendInitialEvents=true" + notOlder, all, true},
		{"&resourceVersion=NOW&sendInitialEvents=false" + notOlder, 0, false},
		{"&labelSelector=parity%3D1", 3, true},
		{"&resourceVersion=0&fieldSelector=metadata.name%3Dc1", 1, true},
	} {
		t.Run(c.query, func(t *testing.T) {
			t.Parallel()
			for _, bookmarks := range []bool{false, true} {
				up := fakeapiserver.New(fakeapiserver.Options{ProofDelay: 10 * time.Millisecond})
				fill(up)
				rv := up.Revision()
				r := rigOf(t, up, rigOptions{mirrors: []*object.Resource{configMaps}})
				now := up.Update(fakeapiserver.ConfigMaps, "n", "c1", fakeapiserver.WithData("k", "v"))
				r.mirrored(configMaps)
				target := mapsPath + "?watch=true" + strings.NewReplacer("NOW", fmt.Sprint(now), "BEFORE", fmt.Sprint(rv)).Replace(
					c.query)
				initial := c.initial
				if bookmarks {
					target += "&allowWatchBookmarks=true"
					if c.state {
						initial++
					}
				}
				ours, theirs := r.watch(target), rawclient.Watch(deadline(t), up.URL, target)
				t.Cleanup(theirs.Close)
				got, want := lines(t, ours, initial), lines(t, theirs, initial)
				up.Create(fakeapiserver.ConfigMaps, "z", "c1", fakeapiserver.WithLabel("parity", "1"))
				up.Update(fakeapiserver.ConfigMaps, "n", "c1", fakeapiserver.WithData("k", "w"))
				up.Delete(fakeapiserver.ConfigMaps, "n", "c1")
				got, want = append(got, lines(t, ours, 3)...), append(want, lines(t, theirs, 3)...)
				if !slices.Equal(got, want) {
					t.Errorf("%s:\ngot  %q\nwant %q", target, got, want)
				}
			}
		})
	}
}

// lines are the next n events as they came. A bookmark is only its kind.
func lines(t *testing.T, w *rawclient.Watcher, n int) []string {
	t.Helper()
	var out []string
	for range n {
		e, err := w.Next(deadline(t))
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		if e.Type == "BOOKMARK" {
			out = append(out, fmt.Sprint("BOOKMARK ", e.End))
			continue
		}
		out = append(out, string(e.Line))
	}
	return out
}

// What is forwarded and what is watched here go on the same listener, and custom resources are
// watched like any other.
func TestWatchCustomResources(t *testing.T) { eachWay(t, testWatchCustomResources) }

func testWatchCustomResources(t *testing.T, goroutines bool) {
	up := fakeapiserver.New(fakeapiserver.Options{})
	fill(up)
	r := rigOf(t, up, rigOptions{goroutines: goroutines})
	target := "/apis/example.com/v1/namespaces/n/widgets?watch=1&resourceVersion=0&allowWatchBookmarks=1" +
		"&fieldSelector=spec.color%3Dred"
	ours, theirs := r.watch(target), rawclient.Watch(deadline(t), up.URL, target)
	t.Cleanup(theirs.Close)
	got, want := lines(t, ours, 8), lines(t, theirs, 8)
	up.Update(fakeapiserver.Widgets, "n", "w3", fakeapiserver.WithField("spec.color", "blue"))
	up.Update(fakeapiserver.Widgets, "n", "w3", fakeapiserver.WithField("spec.color", "red"))
	got, want = append(got, lines(t, ours, 2)...), append(want, lines(t, theirs, 2)...)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A client that leaves is noticed although nothing is sent to it.
func TestDepartedIsNoticed(t *testing.T) { eachWay(t, testDepartedIsNoticed) }

func testDepartedIsNoticed(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	for i, url := range []string{r.url, r.tlsURL} {
		w := rawclient.Watch(deadline(t), url, mapsPath+"?watch=1&resourceVersion=0")
		if code, _, err := w.Head(deadline(t)); err != nil || code != http.StatusOK {
			t.Fatal(code, err)
		}
		if n := r.metric("spillway_watches", "resource=configmaps"); n != 1 {
			t.Errorf("%v streams", n)
		}
		w.Close()
		r.ended(configMaps, watch.EndClientClosed, i+1)
		if n := r.metric("spillway_watches", "resource=configmaps"); n != 0 {
			t.Errorf("%v streams", n)
		}
	}
}

// A client that stops reading is evicted, with a reason in metric and log, and the others get
// everything.
func TestStalledClientAmongOthers(t *testing.T) { eachWay(t, testStalledClientAmongOthers) }

func testStalledClientAmongOthers(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines, stall: 10 * time.Second, mirrors: []*object.Resource{configMaps}})
	const target = mapsPath + "?watch=1&resourceVersion=1"
	stalled := r.watch(target, rawclient.ReceiveBuffer(4096))
	stalled.Stall()
	var others []*rawclient.Watcher
	for range 3 {
		others = append(others, r.watch(target))
	}
	const writes = 40
	for i := range writes {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i), fakeapiserver.WithPadding(50_000))
	}
	r.ended(configMaps, watch.EndSlowClientStalled, 1)
	r.up.Create(fakeapiserver.ConfigMaps, "n", "last")
	for _, w := range others {
		events := until(t, w, func(e rawclient.WatchEvent) bool { return e.Key == "n/last" })
		if len(events) != writes+1 {
			t.Errorf("%d events of %d", len(events), writes+1)
		}
	}
	eventually(t, "that to be logged",
		func() bool { return r.logs.FilterMessage("evicted a slow client: it stopped reading").Len() > 0 })
	if logged := r.logs.FilterMessage("evicted a slow client: it stopped reading").All(); len(logged) != 1 ||
		logged[0].ContextMap()["reason"] != "slow_client_stalled" {
		t.Errorf("logged %v", logged)
	}
	stalled.Resume()
	over(t, stalled, rawclient.Cut) // reset, not a clean end: it has half an event
}

// A log that is too short for a client tells it so, and it lists again (W-107).
func TestALogThatIsTooShortEndsTheWatchWith410(t *testing.T) { eachWay(t, testLapped) }

func testLapped(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}, limits: &shortMemory})
	first := r.up.Create(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithPadding(10_000))
	for i := range 20 {
		r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("i", fmt.Sprint(i)))
	}
	r.mirrored(configMaps)
	floor := r.catalog[configMaps.GVR].Resource().Log().Floor()
	if floor <= first {
		t.Fatalf("nothing was forgotten: %d", floor)
	}
	w := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, first))
	expect(t, w, fmt.Sprintf("ERROR 410 Expired: too old resource version: %d (%d)", first, floor))
	over(t, w, rawclient.Ended)
	// upstream still knows
	list := r.list(fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", mapsPath, first))
	if list.Status != http.StatusOK || list.RV != first {
		t.Errorf("%d at %d", list.Status, list.RV)
	}
}
