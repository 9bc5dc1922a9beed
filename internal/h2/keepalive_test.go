package h2

import (
	"testing"
	"time"
)

// The time of the next ping does not depend on the wall clock: a clock that is set back by hours
// does not delay the ping by hours.
func TestSilenceIsNotMeasuredByTheWallClock(t *testing.T) {
	t.Parallel()
	a := keepalive{conn: &Conn{opts: Options{Quiet: time.Minute}}, began: time.Now()}
	a.frameReceived()
	next, err := a.nextCheck(time.Now())
	if err != nil || time.Until(next) > time.Minute {
		t.Fatalf("due in %v, %v", time.Until(next), err)
	}
	if next == next.Round(0) { // which is what a wall clock alone can tell
		t.Errorf("%v depends on the wall clock", next)
	}
}
