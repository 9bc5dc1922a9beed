package h2

import (
	"testing"
	"time"
)

// When a silent client is to be asked is no matter of the wall clock: if that is set back by hours
// meanwhile, nobody waits for hours.
func TestSilenceIsNotMeasuredByTheWallClock(t *testing.T) {
	t.Parallel()
	a := alive{conn: &Conn{opts: Options{Quiet: time.Minute}}, began: time.Now()}
	a.heard()
	next, err := a.due(time.Now())
	if err != nil || time.Until(next) > time.Minute {
		t.Fatalf("due in %v, %v", time.Until(next), err)
	}
	if next == next.Round(0) { // which is what a wall clock alone can tell
		t.Errorf("%v depends on the wall clock", next)
	}
}
