package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/object"
)

// recentList lists ConfigMaps as of now and returns their names.
func (r *rig) recentList(query string) map[string]bool {
	r.t.Helper()
	l, err := rawclient.List(deadline(r.t), r.url, mapsPath+query)
	if err != nil {
		r.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, key := range l.Keys() {
		names[key] = true
	}
	return names
}

// answered counts the LISTs of the most recent state by how they were answered.
func (r *rig) answered(how string) float64 {
	return r.metric("spillway_consistent_lists_total", "source="+how, "resource=configmaps")
}

// The LISTs of a busy resource are answered from memory where upstream is slow, and show what was
// written before them.
func TestRecentListsOfABusyResource(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i := range 200 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%03d", i))
	}
	r.up.DelayWatch(fakeapiserver.ConfigMaps, time.Millisecond)
	const want = 50
	for i := 0; r.answered(recentFromMemory) < want; i++ {
		if i > 20*want {
			t.Fatalf("%v of %d LISTs were answered from memory", r.answered(recentFromMemory), i)
		}
		name := fmt.Sprintf("w%03d", i)
		r.catalog[configMaps.GVR].Fresh.ObserveUpstreamList(200, 10*time.Second)
		r.up.Create(fakeapiserver.ConfigMaps, "n", name)
		if l := r.recentList(""); !l["n/"+name] || len(l) != 201 {
			t.Fatalf("%d objects, with the one just written: %v", len(l), l["n/"+name])
		}
		if l := r.recentList("?limit=150"); len(l) != 150 {
			t.Fatalf("%d objects of a page of 150", len(l))
		}
		r.up.Delete(fakeapiserver.ConfigMaps, "n", name)
	}
}

// No LIST waits long for a mirror that receives no events, and most do not wait at all.
func TestRecentListsOfAQuietResource(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i := range 200 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%03d", i))
	}
	r.mirrored(configMaps)
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	defer r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	r.up.Create(fakeapiserver.ConfigMaps, "n", "unheard-of")
	for range 20 {
		if l := r.recentList(""); len(l) != 201 {
			t.Errorf("%d objects", len(l))
		}
	}
	if late, passed := r.answered(recentAfterTimeout), r.answered(recentFromUpstream); r.answered(recentFromMemory) != 0 ||
		late < 1 ||
		late+passed != 20 {
		t.Errorf("%v waited unsuccessfully, %v did not wait", late, passed)
	}
}

// A LIST whose proof upstream refuses is passed through: the refusal of a probe is not sent to a
// client.
func TestRecentListWithoutProbes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i := range 200 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%03d", i))
	}
	r.mirrored(configMaps)
	r.up.FailProbes(1, http.StatusForbidden)
	if l := r.recentList(""); len(l) != 200 {
		t.Errorf("%d objects", len(l))
	}
	if r.answered(recentAfterTimeout) != 1 {
		t.Error("no probe was refused: this tests nothing")
	}
}

// The time that upstream takes for a whole answer is reported once, and only if it is no refusal.
func TestTheTimeOfAWholeUpstreamAnswerIsReportedOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		told    int64
	}{
		{"chunks", func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				time.Sleep(5 * time.Millisecond)
				_, _ = io.WriteString(w, "some of it")
				_ = http.NewResponseController(w).Flush()
			}
		}, 1},
		{"length", func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Millisecond)
			_ = json.NewEncoder(w).Encode("all of it")
		}, 1},
		{"refusal", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var told atomic.Int64
			took := func(d time.Duration) {
				told.Add(1)
				if d < 5*time.Millisecond {
					t.Errorf("it took %v", d)
				}
			}
			fr := newFront(t, c.handler, frontOptions{took: took})
			resp, err := http.Get("http://" + fr.addr + "/api")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if n := told.Load(); n != c.told {
				t.Errorf("told %d times, want %d", n, c.told)
			}
		})
	}
}

// Many clients that list at the same time cause only a few LISTs upstream, and each of them gets
// the list.
func TestAStampedeOfListsCausesFewUpstreamLists(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	for i := range 5 { // too few to be worth a proof
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("c%03d", i))
	}
	r.mirrored(configMaps)
	before := len(r.up.RequestsFor(fakeapiserver.ConfigMaps, "list"))
	r.up.StallReads(fakeapiserver.ConsistentReads)
	var clients sync.WaitGroup
	const crowd = 40
	for range crowd {
		clients.Go(func() {
			if l := r.recentList(""); len(l) != 5 {
				t.Errorf("%d objects", len(l))
			}
		})
	}
	eventually(t, "all to have asked", func() bool { return r.answered(recentFromUpstream) == crowd })
	r.up.StallReads(fakeapiserver.NoReads)
	clients.Wait()
	asked := len(r.up.RequestsFor(fakeapiserver.ConfigMaps, "list")) - before
	shared := int(r.metric("spillway_shared_lists_total", "resource=configmaps"))
	if asked > 5 || asked < 1 || shared < crowd-5 {
		t.Errorf("%d LISTs upstream for %d clients, of whom %d shared one", asked, crowd, shared)
	}
	if timed := r.metric("spillway_list_duration_seconds", "source="+listFromSharedAnswer); int(timed) != shared ||
		r.metric("spillway_list_duration_seconds") != crowd {
		t.Errorf("%v LISTs that shared one were timed, of %v", timed, r.metric("spillway_list_duration_seconds"))
	}
}

// Secrets are listed upstream for each client's request, however many come at the same time: the
// proxy lists none in its own name.
func TestSecretsAreNotShared(t *testing.T) {
	t.Parallel()
	secretive := fakeapiserver.ObjectResource(fakeapiserver.Secrets)
	r := newRig(t, rigOptions{mirrors: []*object.Resource{secretive}})
	r.up.Create(fakeapiserver.Secrets, "n", "a")
	r.mirrored(secretive)
	before := len(r.up.RequestsFor(fakeapiserver.Secrets, "list"))
	r.up.StallReads(fakeapiserver.ConsistentReads)
	var clients sync.WaitGroup
	const crowd = 20
	for range crowd {
		clients.Go(func() {
			if l, err := rawclient.List(deadline(t), r.url, "/api/v1/secrets"); err != nil || len(l.Items) != 1 {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
	eventually(t, "all to have asked", func() bool {
		return r.metric("spillway_consistent_lists_total", "source="+recentFromUpstream, "resource=secrets") == crowd
	})
	r.up.StallReads(fakeapiserver.NoReads)
	clients.Wait()
	asked, shared := len(r.up.RequestsFor(fakeapiserver.Secrets, "list"))-before,
		r.metric("spillway_shared_lists_total", "resource=secrets")
	if asked != crowd || shared != 0 {
		t.Errorf("%d LISTs upstream for %d clients, of whom %v shared one", asked, crowd, shared)
	}
}
