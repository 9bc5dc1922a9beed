package flowcontrol

import (
	"math/rand/v2"
	"time"
)

// pressure computes Retry-After for refused requests. As in kube-apiserver's flow control
// (DroppedRequestsTracker), the time doubles when three requests a second were refused during it,
// and falls by a second when fewer than one was. There all clients get the same time, and retry
// together; here each gets a random time of up to twice that.
type pressure struct {
	after   time.Duration // whole seconds; 0: no request has been refused yet
	since   time.Time     // refused is counted from here
	refused int
}

// retryAfterMax is the longest Retry-After, as at kube-apiserver.
const retryAfterMax = 32 * time.Second

// refuse counts a refusal and returns its Retry-After: between a second and twice the present time,
// in whole seconds, because that is the unit of the header.
func (p *pressure) refuse(now time.Time) time.Duration {
	if p.after == 0 {
		p.after, p.since = time.Second, now
	}
	if passed := now.Sub(p.since); passed >= p.after {
		p.adjust(passed)
		p.since, p.refused = now, 0
	}
	p.refused++
	return time.Second + rand.N(2*p.after).Truncate(time.Second) // #nosec G404 -- spreads times
}

// adjust sets the time by the refusals of the time that passed.
func (p *pressure) adjust(passed time.Duration) {
	seconds := int(p.after / time.Second)
	switch {
	case passed >= 2*p.after: // no request was refused for as long again
		p.after -= passed.Truncate(time.Second) - p.after
	case p.refused >= 3*seconds:
		p.after *= 2
	case p.refused < seconds:
		p.after -= time.Second
	}
	p.after = min(max(p.after, time.Second), retryAfterMax/2)
}
