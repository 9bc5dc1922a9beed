package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// draining is a bubble with watches for Drain to end.
func draining(t *testing.T, n int, f func(t *testing.T, w *world, all []*testClient)) {
	t.Helper()
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		var all []*testClient
		for range n {
			const query = "/api/v1/pods?watch=1&resourceVersion=90&allowWatchBookmarks=1&sendInitialEvents=true&" +
				"resourceVersionMatch=NotOlderThan"
			p := w.watch(query)
			p.gets("ADDED a/x 5", "BOOKMARK 100 end")
			all = append(all, p)
		}
		w.set("a/x 101")
		for _, p := range all {
			p.gets("MODIFIED a/x 101")
		}
		f(t, w, all)
	})
}

// TestDrainOutOfTime shows that watches that are not stopped yet when the time is over end cleanly,
// too, before Drain returns: CutConnections follows.
func TestDrainOutOfTime(t *testing.T) {
	draining(t, 3, func(t *testing.T, w *world, all []*testClient) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.manager.RefuseNew()
		w.manager.Drain(ctx, time.Hour)
		synctest.Wait() // a stream's goroutine reports its reason after the stream has left the manager
		for _, p := range all {
			select {
			case got := <-p.reason:
				if got != EndDrain {
					t.Errorf("ended: %s", got)
				}
			default:
				t.Error("has not ended")
			}
			p.gets("BOOKMARK 101")
		}
	})
}

// TestDrainOutOfTimeOfAStalledClient shows that Drain does not wait for a client that does not take
// its end when the time is over.
func TestDrainOutOfTimeOfAStalledClient(t *testing.T) {
	draining(t, 1, func(t *testing.T, w *world, all []*testClient) {
		all[0].pause()
		w.set("a/x 102") // is taken by the read under way
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		w.manager.RefuseNew()
		w.manager.Drain(ctx, time.Hour)
		if took := time.Since(began); took != drainEndTimeout {
			t.Errorf("Drain took %s", took)
		}
		all[0].resume()
	})
}

// TestDrainReturnsWhenNoStreamIsLeft shows that Drain returns as soon as no stream is left.
func TestDrainReturnsWhenNoStreamIsLeft(t *testing.T) {
	draining(t, 2, func(t *testing.T, w *world, all []*testClient) {
		const period = time.Hour
		began := time.Now()
		w.manager.RefuseNew()
		w.manager.Drain(t.Context(), period)
		if took, last := time.Since(began), period*9/10/2; took != last {
			t.Errorf("Drain took %s, the last was ended after %s", took, last)
		}
	})
}

// TestDrainReturnsWhenAllHaveLeft shows that Drain waits for no turn when all clients have left.
func TestDrainReturnsWhenAllHaveLeft(t *testing.T) {
	draining(t, 2, func(t *testing.T, w *world, all []*testClient) {
		const period, turn = time.Hour, 27 * time.Minute // of the second
		began := time.Now()
		for _, p := range all { // either of them is stopped by then
			time.AfterFunc(time.Minute, p.close) // it is noticed with the next bookmark at the latest
		}
		w.manager.RefuseNew()
		w.manager.Drain(t.Context(), period)
		if took := time.Since(began); took >= turn {
			t.Errorf("Drain took %s, the last left after a minute", took)
		}
	})
}
