package watch

import "time"

// monotonicTime is a point in time: nanoseconds since this process began, by the monotonic clock.
// It is a third as large as a time.Time, and most of what an idle watch holds is moments.
type monotonicTime int64

// epoch is the moment 0.
var epoch = time.Now()

// now is the present moment.
func now() monotonicTime { return monotonicTime(time.Since(epoch)) }

// after is the moment some time later; earlier, if d is negative.
func (m monotonicTime) after(d time.Duration) monotonicTime { return m + monotonicTime(d) }

// since is how much time there is between an earlier moment and this one.
func (m monotonicTime) since(earlier monotonicTime) time.Duration { return time.Duration(m - earlier) }

// timeLeft is how long it is until the moment; negative once it is over.
func (m monotonicTime) timeLeft() time.Duration { return m.since(now()) }

// time is the moment by the clock on the wall, as that shows it at present.
func (m monotonicTime) time() time.Time { return time.Now().Add(m.timeLeft()) }
