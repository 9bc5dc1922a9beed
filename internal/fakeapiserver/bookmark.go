package fakeapiserver

import (
	"math/rand/v2"
	"time"
)

// bookmarkTimer fires when a stream should send a bookmark: once per period, and once about two
// seconds before its deadline (W-111).
type bookmarkTimer struct {
	*time.Timer
	period time.Duration
	last   time.Time // when the one before the deadline is due; zero: there is none, or it has been
}

const (
	// shortWatch is the shortest watch that gets a bookmark before its deadline.
	shortWatch = 3 * time.Second
	// leastLead and leadSpread are how long before its deadline: between 1.3 s and 2.3 s. Measured
	// were 0.95 s to 2.1 s, and 0.7 s to 1.7 s of a watch of 3 s.
	leastLead  = 1300 * time.Millisecond
	leadSpread = time.Second
)

func newBookmarkTimer(st *stream) *bookmarkTimer {
	o := st.server.opts
	b := &bookmarkTimer{period: o.BookmarkPeriod}
	switch {
	case st.lifetime < shortWatch:
	case st.isProof && o.ProofDelay > 0:
		b.last = time.Now().Add(o.ProofDelay)
	default:
		b.last = st.deadline.Add(-leastLead - rand.N(leadSpread))
	}
	b.Timer = time.NewTimer(b.wait())
	return b
}

// next sets the timer for the bookmark after the one that fired.
func (b *bookmarkTimer) next() { b.Reset(b.wait()) }

// wait is the time until the next bookmark.
func (b *bookmarkTimer) wait() time.Duration {
	wait := b.period + rand.N(b.period/60+1)
	if b.last.IsZero() {
		return wait
	}
	if left := time.Until(b.last); left <= wait {
		b.last = time.Time{}
		return left
	}
	return wait
}
