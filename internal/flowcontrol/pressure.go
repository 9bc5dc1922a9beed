package flowcontrol

import (
	"math/rand/v2"
	"time"
)

// pressure is how long those who are refused are told to stay away. As in kube-apiserver's flow
// control (its DroppedRequestsTracker) that is twice as long whenever three a second were refused
// for so long, and a second less when hardly anybody was. There it is the same for all, who then
// come back together; here each is told a time of his own.
type pressure struct {
	after   time.Duration // whole seconds; 0: nobody has been refused yet
	since   time.Time     // refused is counted from here
	refused int
}

// retryMost is the longest that anybody is told to stay away: as long as there.
const retryMost = 32 * time.Second

// refuse counts a refusal and returns how long whoever was refused is to stay away: between a
// second and twice the present time, in whole seconds, since that is what Retry-After can say.
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

// adjust learns from what was refused in the time that passed.
func (p *pressure) adjust(passed time.Duration) {
	seconds := int(p.after / time.Second)
	switch {
	case passed >= 2*p.after: // nobody came for as long again
		p.after -= passed.Truncate(time.Second) - p.after
	case p.refused >= 3*seconds:
		p.after *= 2
	case p.refused < seconds:
		p.after -= time.Second
	}
	p.after = min(max(p.after, time.Second), retryMost/2)
}
