package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"spillway/internal/kubetest"
	"spillway/internal/object"
)

// Draining ends streams one after another, each after a bookmark, takes no new ones, and answers everything else meanwhile (D14).
func TestDrain(t *testing.T) { eachWay(t, testDrain) }

func testDrain(t *testing.T, goroutines bool) {
	t.Parallel()
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	r.up.Create(kubetest.ConfigMaps, "n", "a")
	r.mirrored(configMaps)
	const n = 10
	var mu sync.Mutex
	var ends []time.Time
	var all []*kubetest.Watcher
	var waiting sync.WaitGroup
	for range n {
		w := r.watch(mapsPath + "?watch=1&resourceVersion=1&allowWatchBookmarks=1")
		all = append(all, w)
	}
	for _, w := range all {
		expect(t, w, "ADDED n/a 2")
		waiting.Go(func() {
			_, _ = w.Wait(deadline(t)) // looked at below
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, time.Now())
		})
	}
	const period = time.Second
	began := time.Now()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(deadline(t), period)
	}()
	r.ended(configMaps, EndDrain, 1)
	if list := r.list(mapsPath + "?watch=1&resourceVersion=0"); list.Status != http.StatusServiceUnavailable || list.Failure == nil {
		t.Errorf("a new watch: %d %s", list.Status, list.Body)
	}
	if list := r.list(mapsPath + "?resourceVersion=0"); list.Status != http.StatusOK || len(list.Items) != 1 {
		t.Errorf("a list: %d %s", list.Status, list.Body)
	}
	waiting.Wait()
	<-drained
	for i, end := range ends { // the first at once, then one per tick: on a slow machine later, never sooner
		if least := period * 9 / 10 / n * time.Duration(i); end.Sub(began) < least {
			t.Errorf("end %d after %v, not before %v", i, end.Sub(began), least)
		}
	}
	for _, w := range all {
		over(t, w, kubetest.Ended)
		if events := w.Events(); len(events) != 2 || events[1].String() != "BOOKMARK 2" {
			t.Errorf("got %v", events)
		}
	}
	r.ended(configMaps, EndDrain, n)
}

// Draining does not wait for a client that does not read longer than it is told to; Close then resets it.
func TestDrainOfAStalledClient(t *testing.T) { eachWay(t, testDrainOfAStalledClient) }

func testDrainOfAStalledClient(t *testing.T, goroutines bool) {
	r := newRig(t, rigOptions{goroutines: goroutines, mirrors: []*object.Resource{configMaps}})
	w := r.watch(mapsPath+"?watch=1&resourceVersion=1", kubetest.ReceiveBuffer(4096))
	w.Stall()
	for i := range 20 {
		r.up.Create(kubetest.ConfigMaps, "n", fmt.Sprint(i), kubetest.WithPadding(100_000))
	}
	r.mirrored(configMaps)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.server.Drain(ctx, time.Nanosecond)
	if ctx.Err() == nil {
		t.Error("a stream that cannot end has ended")
	}
	r.close()
	if n := r.metric("spillway_watch_ends_total", "reason=aborted", "resource=configmaps"); n != 1 {
		t.Errorf("%v streams were aborted", n)
	}
	w.Resume()
	over(t, w, kubetest.Cut)
}

// With nothing to end, draining takes no time.
func TestDrainOfNothing(t *testing.T) {
	r := newRig(t, rigOptions{mirrors: []*object.Resource{configMaps}})
	r.server.Drain(deadline(t), time.Hour)
}
