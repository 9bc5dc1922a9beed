package authtest

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// Clock is a clock like a host's. What it shows has a reading of the wall clock, which may be set,
// and one of the monotonic clock, which may not. Inside a bubble of testing/synctest, times have
// the first alone, so a Clock is made outside.
type Clock struct {
	clock.RealClock // its timers
	t               *testing.T
	base            time.Time    // what it shows at its beginning
	began           time.Time    // by the bubble's clock
	off             atomic.Int64 // by how much the wall clock was set forward, in ns
}

// NewClock returns a clock that Begin starts.
func NewClock(t *testing.T) *Clock { return &Clock{t: t, base: time.Now()} }

// Base is what the clock shows when it begins.
func (c *Clock) Base() time.Time { return c.base }

// Begin starts the clock at its base, inside a bubble, with the wall clock right.
func (c *Clock) Begin() {
	c.began = time.Now()
	c.off.Store(0)
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	return SetBack(c.t, c.base.Add(time.Since(c.began)), -time.Duration(c.off.Load()))
}

// Since implements clock.Clock.
func (c *Clock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// Jump sets the wall clock forward, or back.
func (c *Clock) Jump(by time.Duration) { c.off.Add(int64(by)) }

// Jumps are how tests set wall clocks.
var Jumps = map[string]time.Duration{"back": -3 * time.Hour, "forward": 3 * time.Hour}

// SetBack is the same moment after the wall clock was set back by whole seconds. Package time makes
// no such value.
func SetBack(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	const second = 1 << 30 // in the word that begins a Time with both clocks
	back := at
	*(*uint64)(unsafe.Pointer(&back)) -= uint64(by/time.Second) * second // #nosec G103 -- nothing else sets both clocks
	if !back.Equal(at) || !back.Round(0).Equal(at.Round(0).Add(-by)) {
		t.Fatalf("package time keeps its clocks in another way: %v, %v", at, back)
	}
	return back
}
