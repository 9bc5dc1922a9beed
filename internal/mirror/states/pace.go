package states

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Pace spaces out attempts that are repeated for the same reason: the first at once, the next after
// First, and each following pause twice as long, up to Longest. After twice the longest pause
// without an attempt it starts again. A Pace belongs to one goroutine, or to a lock.
//
// wait.Backoff and its delays do not fit: they are not asked whether an attempt is due, and their
// longest pause cannot change.
type Pace struct {
	First, Longest time.Duration

	pause time.Duration // until the next attempt; 0: none
	last  time.Time     // attempt
}

// Due is when the next attempt may be made.
func (p *Pace) Due() time.Time { return p.last.Add(p.pause) }

// Note notes that an attempt is made now.
func (p *Pace) Note(now time.Time) {
	if p.pause == 0 || now.Sub(p.last) > 2*p.Longest {
		p.pause = p.First
	} else {
		p.pause = min(2*p.pause, p.Longest)
	}
	p.last = now
}

// Try notes an attempt if one is due, and reports whether it was.
func (p *Pace) Try(now time.Time) bool {
	if now.Before(p.Due()) {
		return false
	}
	p.Note(now)
	return true
}

// Next notes that an attempt failed now, and says when to make the next one: a fifth sooner or
// later than planned, so that mirrors that failed together do not retry together.
func (p *Pace) Next(now time.Time) time.Time {
	p.Note(now)
	return now.Add(wait.Jitter(p.pause*4/5, 0.5))
}

// Reset makes the next attempt the first one.
func (p *Pace) Reset() { p.pause, p.last = 0, time.Time{} }
