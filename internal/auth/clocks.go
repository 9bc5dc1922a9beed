package auth

import "time"

// OnRunningClock is an end that a credential tells, by the wall clock, on the clock that near was
// read from. So a timer that runs until then does not run hours longer after the wall clock was set
// back.
func OnRunningClock(end, near time.Time) time.Time { return near.Add(end.Sub(near)) }

// minClockStep is by how much a wall clock must have gone back to count as set back: the two
// clocks of a host drift apart by less.
const minClockStep = time.Second

// SetBackSince reports that the wall clock was set back since a moment, and what it would show now
// if it had not been. An end that a credential tells has come when either has reached it: a
// credential that was over does not become good again.
func SetBackSince(began, now time.Time) (otherwise time.Time, back bool) {
	otherwise = began.Round(0).Add(now.Sub(began))
	return otherwise, otherwise.Sub(now.Round(0)) >= minClockStep
}
