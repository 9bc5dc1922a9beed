package serve

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// gap makes the mirror miss what happens meanwhile, deletions included: its watch is gone, and so
// is upstream's memory.
func (r *rig) gap(during func()) {
	r.t.Helper()
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	during()
	r.up.ForgetHistory(fakeapiserver.ConfigMaps)
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	r.mirrored(configMaps)
}

// A gap in the mirror's stream is closed by what changed: streams stay open and learn of deletions,
// changes and the new present, in that order (D5).
func TestAGapIsClosedOnOpenStreamsInOrder(t *testing.T) { eachWay(t, testSeamEndToEnd) }

func testSeamEndToEnd(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	for _, name := range []string{"a", "b", "c"} {
		r.up.Create(fakeapiserver.ConfigMaps, "n", name)
	}
	r.mirrored(configMaps)
	marked := r.watch(mapsPath + "?watch=1&resourceVersion=0&allowWatchBookmarks=1")
	unmarked := r.watch(mapsPath + "?watch=1&resourceVersion=0")
	p := r.catalog[configMaps.GVR].Resource().CompleteRV()
	expect(t, marked, "ADDED n/a 2", "ADDED n/b 3", "ADDED n/c 4", fmt.Sprintf("BOOKMARK %d end", p))
	expect(t, unmarked, "ADDED n/a 2", "ADDED n/b 3", "ADDED n/c 4")
	var b, d uint64
	r.gap(func() {
		r.up.Delete(fakeapiserver.ConfigMaps, "n", "a")
		b = r.up.Update(fakeapiserver.ConfigMaps, "n", "b", fakeapiserver.WithData("k", "v"))
		d = r.up.Create(fakeapiserver.ConfigMaps, "n", "d")
		r.up.Create(fakeapiserver.ConfigMaps, "n", "came-and-went")
		r.up.Delete(fakeapiserver.ConfigMaps, "n", "came-and-went")
	})
	l := r.catalog[configMaps.GVR].Resource().CompleteRV()
	want := []string{fmt.Sprintf("DELETED n/a %d", p), fmt.Sprintf("MODIFIED n/b %d", b), fmt.Sprintf("ADDED n/d %d", d)}
	expect(t, unmarked, want...)
	expect(t, marked, append(want, fmt.Sprintf("BOOKMARK %d", l))...)
	resumed := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, p))
	expect(t, resumed, want...)
	inside := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, b))
	expect(t, inside, fmt.Sprintf("ERROR 410 Expired: too old resource version: %d (%d)", b, l))
	over(t, inside, rawclient.Ended)
	next := r.up.Create(fakeapiserver.ConfigMaps, "n", "e")
	for _, w := range []*rawclient.Watcher{marked, unmarked, resumed} {
		expect(t, w, fmt.Sprintf("ADDED n/e %d", next))
	}
	for _, reason := range watch.EndReasons {
		if reason != watch.EndResourceVersionExpired &&
			r.metric("spillway_watch_terminations_total", "reason="+string(reason), "resource=configmaps") != 0 {
			t.Errorf("a stream ended: %s", reason)
		}
	}
}

// A restored etcd has another history: every open stream expires, and so does a watch that resumes
// from above it (D5).
func TestRestoredUpstream(t *testing.T) { eachWay(t, testRestoredUpstream) }

func testRestoredUpstream(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	snapshot := r.up.Snapshot()
	later := r.up.Create(fakeapiserver.ConfigMaps, "n", "b")
	r.mirrored(configMaps)
	streams := []*rawclient.Watcher{
		r.watch(mapsPath + "?watch=1&resourceVersion=0&allowWatchBookmarks=1"),
		r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, later)),
		r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, later+1000)),
	}
	r.live(len(streams)) // or they would begin with what was restored
	r.up.RestoreFrom(snapshot)
	r.mirrors[configMaps.GVR].Relist("restored") // its plain watch from the future would stay silent
	for i, w := range streams {
		events := until(t, w, func(e rawclient.WatchEvent) bool { return e.Type == "ERROR" })
		if last := events[len(events)-1]; last.Status.Code != 410 || last.Status.Reason != metav1.StatusReasonExpired {
			t.Errorf("stream %d: %v", i, last)
		}
		over(t, w, rawclient.Ended)
	}
	again := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, later))
	expect(t, again, fmt.Sprintf("ERROR 410 Expired: too old resource version: %d (%d)", later,
		r.catalog[configMaps.GVR].Resource().CompleteRV()))
	fresh := r.watch(mapsPath + "?watch=1&resourceVersion=0")
	expect(t, fresh, "ADDED n/a 2")
}

// After etcd was restored its revision moves on with every write to any resource, while a quiet
// resource has no events. A watch of a client that has listed again must not expire again: neither
// one from a list that passed through, nor one that begins with a state.
func TestRestoredAndQuiet(t *testing.T) { eachWay(t, testRestoredAndQuiet) }

func testRestoredAndQuiet(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	snapshot := r.up.Snapshot()
	for i := range 100 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint("later-", i))
	}
	r.mirrored(configMaps)
	promised := r.catalog[configMaps.GVR].Resource().CompleteRV()
	r.up.RestoreFrom(snapshot)
	r.mirrors[configMaps.GVR].Relist("restored")
	eventually(t, "the past to be void",
		func() bool { return r.catalog[configMaps.GVR].Resource().CompleteRV() < promised })
	r.up.SuppressBookmarks(fakeapiserver.ConfigMaps, true)
	var open []*rawclient.Watcher
	for i := range 5 {
		r.up.Create(fakeapiserver.Pods, "n", fmt.Sprint("p", i)) // which this resource does not hear of
		if through := r.catalog[configMaps.GVR].Resource().CompleteRV(); through >= r.up.Revision() ||
			r.up.Revision() >= promised {
			t.Fatalf("through %d, upstream at %d, promised %d: this tests nothing", through, r.up.Revision(), promised)
		}
		listed := r.up.Revision() // what a list says that passes through
		open = append(open, r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, listed)))
		state := r.watch(mapsPath + "?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		until(t, state, func(e rawclient.WatchEvent) bool { return e.End })
		open = append(open, state)
	}
	past := r.watch(fmt.Sprintf("%s?watch=1&resourceVersion=%d", mapsPath, promised))
	if events := until(t, past, func(e rawclient.WatchEvent) bool {
		return e.Type == "ERROR"
	}); events[0].Status.Code != 410 {
		t.Errorf("who comes from the past is told %v", events)
	}
	next := fmt.Sprintf("ADDED n/b %d", r.up.Create(fakeapiserver.ConfigMaps, "n", "b"))
	for i, w := range open {
		events := until(t, w, func(e rawclient.WatchEvent) bool { return e.Type == "ERROR" || e.String() == next })
		if last := events[len(events)-1]; last.Type == "ERROR" {
			t.Errorf("watch %d: %v", i, last)
		}
	}
}

// informerCache is a real informer behind the proxy.
type informerCache struct{ cache.SharedIndexInformer }

// informer runs a real informer against the proxy until the test ends.
func (r *rig) informer(contentType string) informerCache {
	r.t.Helper()
	config := &rest.Config{Host: r.url, QPS: -1}
	config.ContentType = contentType
	if contentType != "application/json" {
		config.AcceptContentTypes = contentType + ",application/json"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		r.t.Fatal(err)
	}
	in := informerCache{informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer()}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { in.Run(stop) })
	r.t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	return in
}

// holds waits until the informer holds what upstream stores: no less, and no ghosts.
func (in informerCache) holds(t *testing.T, up *fakeapiserver.Server) {
	t.Helper()
	var truth, held map[string]string
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		truth, held = map[string]string{}, map[string]string{}
		for _, o := range up.List(fakeapiserver.ConfigMaps) {
			truth[o.Key] = strconv.FormatUint(o.RV, 10)
		}
		for _, o := range in.GetStore().List() {
			m := o.(metav1.Object)
			held[cache.MetaObjectToName(m).String()] = m.GetResourceVersion()
		}
		if in.HasSynced() && maps.Equal(truth, held) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("want %v\nhold %v", truth, held)
		}
	}
}

// Real informers converge through the proxy, whatever happens upstream, and keep no ghosts.
func TestInformersThroughTheProxy(t *testing.T) { eachWay(t, testInformersThroughTheProxy) }

func testInformersThroughTheProxy(t *testing.T, goroutines bool) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
			for i := range 10 {
				r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i))
			}
			all := []informerCache{r.informer("application/json"), r.informer("application/vnd.kubernetes.protobuf")}
			check := func() {
				t.Helper()
				for _, in := range all {
					in.holds(t, r.up)
				}
			}
			check()
			changes := func(round int) {
				r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("new-%d", round))
				r.up.Update(fakeapiserver.ConfigMaps, "n", "1", fakeapiserver.WithData("round", fmt.Sprint(round)))
				r.up.Delete(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("new-%d", round-1))
			}
			for i, trouble := range []func(){
				func() { r.gap(func() { changes(100) }) },
				func() { r.up.DropWatches(fakeapiserver.ConfigMaps) },
				func() { r.up.CutWatches(fakeapiserver.ConfigMaps) },
				func() {
					r.gap(func() {
						for _, o := range slices.Backward(r.up.List(fakeapiserver.ConfigMaps)) {
							r.up.Delete(fakeapiserver.ConfigMaps, o.Namespace, o.Name)
						}
						r.up.Create(fakeapiserver.ConfigMaps, "n", "1") // another of that name
					})
				},
				func() { r.up.Restart() },
				func() { r.up.DelayWatch(fakeapiserver.ConfigMaps, time.Millisecond) },
			} {
				changes(2 * i)
				trouble()
				changes(2*i + 1)
				check()
			}
		})
	}
}
