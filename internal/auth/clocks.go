package auth

import "time"

// MonotonicEnd is the end that a credential states, which is a time of the wall clock, on the
// monotonic clock of near. A timer until then does not run hours longer after the wall clock was
// set back.
func MonotonicEnd(end, near time.Time) time.Time { return near.Add(end.Sub(near)) }

// minClockStep is by how much a wall clock must have gone back to count as set back: the two clocks
// of a host drift apart by less.
const minClockStep = time.Second

// DetectSetBack reports whether the wall clock was set back between two readings, and what it would
// show now otherwise. A credential has ended once either time has reached its end: one that was
// over does not become valid again.
func DetectSetBack(began, now time.Time) (otherwise time.Time, isSetBack bool) {
	otherwise = began.Round(0).Add(now.Sub(began))
	return otherwise, otherwise.Sub(now.Round(0)) >= minClockStep
}
