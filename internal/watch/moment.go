package watch

import "time"

// moment is a point in time: nanoseconds since this process began, by the monotonic clock. It is a
// third as large as a time.Time, and most of what an idle watch holds is moments.
type moment int64

// epoch is the moment 0.
var epoch = time.Now()

// now is the present moment.
func now() moment { return moment(time.Since(epoch)) }

// after is the moment some time later; earlier, if d is negative.
func (m moment) after(d time.Duration) moment { return m + moment(d) }

// since is how much time there is between an earlier moment and this one.
func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }

// left is how long it is until the moment; negative once it is over.
func (m moment) left() time.Duration { return m.since(now()) }

// time is the moment by the clock on the wall, as that shows it at present.
func (m moment) time() time.Time { return time.Now().Add(m.left()) }
