package upstream

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// endingClock is the real clock, except that nobody waits on it longer than its context lives: client-go's watch-list waits out its
// back-off, up to a minute, without looking at the context.
type endingClock struct {
	clock.RealClock
	ctx context.Context
}

// After sends the time once, after d or when the context ends.
func (c endingClock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	fire := func() {
		select {
		case ch <- time.Now():
		default:
		}
	}
	forget := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		forget()
		fire()
	})
	return ch
}
