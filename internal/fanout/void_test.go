package fanout

import (
	"context"
	"runtime"
	"sync"
	"testing"
)

func contextFor(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx, cancel
}

// History may become void at any moment: no cursor survives that, however close to the head it
// reads, and no resume slips through.
func TestNoCursorSurvivesVoidHistory(t *testing.T) {
	const rounds = 1000
	w := newWorld(t, plenty)
	w.rv = 10 * rounds // each restored etcd is older than the one before
	w.progress()
	ctx, stop := contextFor(t)
	var hub sync.WaitGroup
	hub.Go(func() { _ = w.hub.Run(ctx) })
	for round := range rounds {
		s := w.resource.Snapshot()
		var done, reading sync.WaitGroup
		reader := func(follow func() bool) {
			reading.Add(1)
			done.Go(func() {
				more := follow()
				reading.Done()
				for more {
					more = follow()
				}
			})
		}
		for _, c := range []*Cursor{w.live(everything, plain), w.live(namespace("a"), plain),
			w.hub.NewReplayCursor(s.Next, s.RV, everything, plain)} {
			var wait <-chan struct{}
			reader(func() bool {
				if wait != nil && round%2 == 0 {
					<-wait
				}
				wait = c.Wait()
				if _, err := c.Next(); err != nil {
					c.Close()
					return false
				}
				if c.position > s.Next {
					t.Errorf("round %d: a cursor went on across void history", round)
					c.Close()
					return false
				}
				runtime.Gosched()
				return true
			})
		}
		reader(func() bool {
			c, err := w.hub.ViewFor("").CursorFromRV(s.RV, everything, plain)
			if err != nil {
				return false
			}
			defer c.Close()
			if c.position > s.Next {
				t.Errorf("round %d: a resume in a past that no longer exists was accepted", round)
				return false
			}
			runtime.Gosched()
			return true
		})
		reading.Wait()
		w.must(w.resource.Replace(nil, s.RV-1))
		done.Wait()
		if t.Failed() {
			break
		}
	}
	stop()
	hub.Wait()
}
