package serve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"spillway/internal/cache"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/freshness"
	"spillway/internal/object"
	"spillway/internal/watch"
)

// stale is a read that did not show a write which was acknowledged before it began.
type stale struct {
	wrote, through uint64
	query          string
}

func (s stale) Error() string {
	return fmt.Sprintf("%s: complete through %d, without the write at %d", s.query, s.through, s.wrote)
}

// readAfterWrite writes, then reads what a consistent watch says is the present, and returns how
// stale that is: nil if it is not. A stream whose connection was cut may end before it shows that.
// Then it is tried again.
func readAfterWrite(t *testing.T, r *rig, namespace, name string, bookmarks bool) error {
	t.Helper()
	wrote := r.up.Create(fakeapiserver.ConfigMaps, namespace, name)
	query := "?watch=true"
	if bookmarks {
		query += "&allowWatchBookmarks=true"
	} else {
		query += "&fieldSelector=metadata.name%3D" + name
	}
	for {
		w := rawclient.Watch(deadline(t), r.url, "/api/v1/namespaces/"+namespace+"/configmaps"+query)
		shown := uint64(0) // of the object that was written
		for {
			e, err := w.Next(deadline(t))
			if err != nil {
				if !errors.As(err, new(*rawclient.WatchEnd)) {
					t.Fatal(err)
				}
				break
			}
			if e.Key == namespace+"/"+name {
				shown = e.RV
			}
			// Without a bookmark the first event is part of the claim already, and it can only be about this
			// object.
			if e.End || !bookmarks {
				w.Close()
				if shown < wrote || e.RV < wrote {
					return stale{wrote, e.RV, query}
				}
				return nil
			}
		}
		w.Close()
	}
}

// Consistent watches never show less than was acknowledged before they began, whatever the mirror's
// own stream does meanwhile (D7, W-210).
func TestConsistentReadsAreNeverStale(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	stop := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() { r.disturb(stop) })
	var readers sync.WaitGroup
	var tries atomic.Int64
	for i := range 8 {
		readers.Go(func() {
			for n := range 40 {
				name := fmt.Sprintf("w%d-%d", i, n)
				if err := readAfterWrite(t, r, fmt.Sprintf("n%d", i), name, n%4 != 0); err != nil {
					t.Error(err)
				}
				if n%3 == 0 {
					r.up.Delete(fakeapiserver.ConfigMaps, fmt.Sprintf("n%d", i), name)
				}
				tries.Add(1)
			}
		})
	}
	readers.Wait()
	close(stop)
	trouble.Wait()
	if n := tries.Load(); n != 320 {
		t.Errorf("%d tries", n)
	}
	if answeredInStreams(r) == 0 {
		t.Error("nothing was watched here: the test tests nothing")
	}
}

// disturb lets the mirror's stream lag, stand still and catch up, at random.
func (r *rig) disturb(stop chan struct{}) {
	defer func() {
		r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
		r.up.DelayWatch(fakeapiserver.ConfigMaps, 0)
	}()
	for {
		switch rand.IntN(5) {
		case 0:
			r.up.HoldWatch(fakeapiserver.ConfigMaps)
		case 1:
			r.up.DelayWatch(fakeapiserver.ConfigMaps, time.Duration(rand.IntN(20))*time.Millisecond)
		case 2:
			r.up.DropWatches(fakeapiserver.ConfigMaps)
		default:
			r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
			r.up.DelayWatch(fakeapiserver.ConfigMaps, 0)
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.IntN(30)) * time.Millisecond):
		}
	}
}

// answeredInStreams is how many watches ended that were served from memory.
func answeredInStreams(r *rig) float64 {
	sum := 0.0
	for _, reason := range watch.EndReasons {
		sum += r.metric("spillway_watch_terminations_total", "reason="+string(reason), "resource=configmaps")
	}
	return sum
}

// falseProber is a prober whose proofs succeed at once, whatever upstream has.
type falseProber struct{ resource *cache.Resource }

func (l falseProber) Begin(context.Context) (uint64, freshness.Proof, error) {
	return l.resource.CompleteRV(), l, nil
}

func (l falseProber) Prove(context.Context, uint64) (bookmark, last uint64, err error) {
	return l.resource.CompleteRV(), 0, nil
}

func (l falseProber) State(context.Context) (uint64, map[string]uint64, error) {
	return 0, nil, errors.New("a liar shows nothing")
}

func (l falseProber) Close() {}

// The check above catches a proof that proves nothing.
func TestPlantedStaleness(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	source := r.catalog[configMaps.GVR]
	source.Fresh = freshness.New(source.Resource(), falseProber{source.Resource()})
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	if err := readAfterWrite(t, r, "n", "a", true); err == nil {
		t.Error("a stale end bookmark was not noticed")
	}
}

// While the mirror's stream stands still, a watch that must not be older than its request waits. It
// then begins with what was missing (W-212, W-215).
func TestHeadWaitsForTheMirror(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	rv := r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("k", "v"))
	w := r.watch(mapsPath + "?watch=1&allowWatchBookmarks=1")
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps)
	events, err := w.Until(deadline(t), isEnd)
	w.Close()
	if err != nil || len(events) != 2 || events[0].String() != fmt.Sprintf("ADDED n/a %d", rv) || events[1].RV < rv {
		t.Errorf("%v %v", events, err)
	}
}

// A watch that cannot be proven passes through: at first after the time of a proof, then at once,
// until a proof succeeds again (W-216).
func TestPassesThroughWithoutProofs(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.server.unprovenWatches = rate.NewLimiter(rate.Inf, 0) // as often as this looks
	r.up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	r.up.HoldWatch(fakeapiserver.ConfigMaps)
	rv := r.up.Update(fakeapiserver.ConfigMaps, "n", "a", fakeapiserver.WithData("k", "v")) // ahead of what it has told
	const target = mapsPath + "?watch=1&allowWatchBookmarks=1"
	for range 2 {
		w := r.watch(target)
		expect(t, w, fmt.Sprintf("ADDED n/a %d", rv))
		w.Close()
	}
	if n := answeredInStreams(r); n != 0 {
		t.Errorf("%v watches were served here", n)
	}
	w := r.watch(target)
	expect(t, w, fmt.Sprintf("ADDED n/a %d", rv), fmt.Sprintf("BOOKMARK %d end", r.up.Revision()))
	if n := r.up.OpenWatches(fakeapiserver.ConfigMaps).Long; n != 2 { // the mirror's, and the client's
		t.Errorf("%d long watches upstream", n)
	}
	w.Close()
	r.up.ReleaseWatch(fakeapiserver.ConfigMaps) // the flight under way succeeds
	eventually(t, "a watch from memory", func() bool {
		w := r.watch(target)
		defer w.Close()
		until(t, w, isEnd)
		return r.metric("spillway_watches", "resource=configmaps") == 1
	})
}
