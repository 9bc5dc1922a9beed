package states

import (
	"math/rand/v2"
	"time"
)

// Pace spaces out questions that are repeated for the same reason: the first at once, the next
// after First, and each following pause twice as long up to Longest. After a time without a
// question that is twice the longest pause it begins anew. The zero value of the unexported part is
// ready; it belongs to one goroutine, or to a lock.
type Pace struct {
	First, Longest time.Duration

	pause time.Duration // before the next question; 0: none
	last  time.Time     // question
}

// Due is when the next question may be sent.
func (p *Pace) Due() time.Time { return p.last.Add(p.pause) }

// Ask notes that a question is sent now.
func (p *Pace) Ask(now time.Time) {
	switch {
	case p.pause == 0, now.Sub(p.last) > 2*p.Longest:
		p.pause = p.First
	default:
		p.pause = min(2*p.pause, p.Longest)
	}
	p.last = now
}

// Try asks, if a question is due, and reports whether it was.
func (p *Pace) Try(now time.Time) bool {
	if now.Before(p.Due()) {
		return false
	}
	p.Ask(now)
	return true
}

// Next notes that something failed now and says when to try it again: a fifth sooner or later than
// planned, so that those that failed together do not ask together.
func (p *Pace) Next(now time.Time) time.Time {
	p.Ask(now)
	return now.Add(p.pause*4/5 + rand.N(p.pause*2/5+1)) // #nosec G404 -- spreads times
}

// Reset begins anew.
func (p *Pace) Reset() { p.pause, p.last = 0, time.Time{} }
