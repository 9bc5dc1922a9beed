package clientconn

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// guardLooks is how often the guard of the memory looks.
const guardLooks = 100 * time.Millisecond

// TestEvictionInLowMemory shows that a client that takes nothing, or little of what pins old state,
// is evicted soon once memory is short, also if its write has begun before.
func TestEvictionInLowMemory(t *testing.T) {
	const stall = 10 * time.Minute
	for _, c := range []struct {
		name      string
		pins      bool
		n         int // bytes that the client takes at once, each second
		lowMemory bool
		want      error
	}{
		{"nothing", false, 0, true, ErrStalled},
		{"nothing, with time", false, 0, false, nil},
		{"a byte is progress", false, 1, true, nil},
		{"a thin line, pins", true, 40_000, true, ErrSlow},
		{"a thin line, pins, with time", true, 40_000, false, nil},
		{"the rate that is demanded then", true, 2 * lowMemoryRate, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe(t)
				if c.n > 0 {
					go drip(far, c.n, time.Second)
				}
				e := &EvictionPolicy{}
				paced := &PacedConn{Conn: near, eviction: e}
				if err := paced.SetPace(stall, pinnedIf(c.pins)); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := paced.Write(make([]byte, 100<<20))
					ended <- err
				}()
				time.Sleep(3 * time.Second)
				e.SetLowMemory(c.lowMemory)
				for range int((lowMemoryStallTimeout + 2*RecheckInterval) / guardLooks) {
					time.Sleep(guardLooks)
					if c.lowMemory {
						e.EndSlow()
					}
				}
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, c.want) || c.want == nil {
						t.Errorf("ended with %v, want %v", err, c.want)
					}
				default:
					if c.want != nil {
						t.Error("it goes on")
					}
				}
			})
		})
	}
}

// TestLowMemoryEvictsSlowClientsOnly shows that a client that takes everything at once is not
// evicted, however long its answer takes to make.
func TestLowMemoryEvictsSlowClientsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		e := &EvictionPolicy{}
		e.SetLowMemory(true)
		paced := &PacedConn{Conn: near, eviction: e}
		if err := paced.SetPace(10*time.Minute, 1); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			time.Sleep(2 * lowMemoryStallTimeout) // so long it takes to be made
			e.EndSlow()
			if _, err := paced.Write(make([]byte, 64<<10)); err != nil {
				t.Fatalf("piece %d: %v", i, err)
			}
		}
	})
}
