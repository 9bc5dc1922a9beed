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
	before time.Time // when the one before the deadline is due; zero: none, or had
}

// shortWatch is the shortest watch that gets a bookmark before its deadline.
const shortWatch = 3 * time.Second

func newBookmarkTimer(st *stream) *bookmarkTimer {
	o := st.server.opts
	b := &bookmarkTimer{period: o.BookmarkPeriod}
	switch {
	case st.lifetime < shortWatch:
	case st.proof && o.ProofDelay > 0:
		b.before = time.Now().Add(o.ProofDelay)
	default: // measured: 0.95 to 2.1 s before the end, with 3 seconds after 0.7 to 1.7
		b.before = st.deadline.Add(
			-2*time.Second + rand.N(time.Second) - 300*time.Millisecond) // #nosec G404 -- spreads times
	}
	b.Timer = time.NewTimer(b.wait())
	return b
}

// next sets the timer for the bookmark after the one that fired.
func (b *bookmarkTimer) next() { b.Reset(b.wait()) }

func (b *bookmarkTimer) wait() time.Duration {
	wait := b.period + rand.N(b.period/60+1) // #nosec G404 -- spreads times
	if b.before.IsZero() {
		return wait
	}
	if left := time.Until(b.before); left <= wait {
		b.before = time.Time{}
		return left
	}
	return wait
}
