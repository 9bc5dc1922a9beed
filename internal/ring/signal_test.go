package ring

import (
	"sync"
	"sync/atomic"
	"testing"
)

// counter counts its wakes.
type counter struct{ wakes atomic.Int64 }

func (c *counter) Wake() { c.wakes.Add(1) }

func TestSignalTellsSubscribers(t *testing.T) {
	var s Signal
	var a, b counter
	s.Wake()
	s.Subscribe(&a)
	s.Wake()
	s.Subscribe(&b)
	s.Wake()
	s.Unsubscribe(&a)
	s.Unsubscribe(&a) // once more does no harm
	s.Wake()
	if a.wakes.Load() != 2 || b.wakes.Load() != 2 {
		t.Errorf("%d and %d wakes, want 2 and 2", a.wakes.Load(), b.wakes.Load())
	}
}

// A waker that subscribes and then looks misses nothing, however many come and go meanwhile.
func TestSignalSubscribersComeAndGo(t *testing.T) {
	var s Signal
	var lasting counter
	s.Subscribe(&lasting)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				var c counter
				s.Subscribe(&c)
				s.Wake()
				if c.wakes.Load() == 0 {
					t.Error("a subscriber was not told")
				}
				s.Unsubscribe(&c)
			}
		})
	}
	wg.Wait()
	if n := lasting.wakes.Load(); n != 4000 {
		t.Errorf("%d wakes of 4000", n)
	}
	if left := len(*s.subscribers.Load()); left != 1 {
		t.Errorf("%d subscribers are left", left)
	}
}

func TestSignalWakeAllocatesNothing(t *testing.T) {
	var s Signal
	var c counter
	s.Subscribe(&c)
	if n := testing.AllocsPerRun(100, s.Wake); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
