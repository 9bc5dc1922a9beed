package upstream

import (
	"math/rand/v2"
	"time"
)

const (
	// minPause and maxPause are how long a mirror waits before it asks again: the first time
	// after something that lasted, and at most. Each is made up to half as long again or as short,
	// so that mirrors which failed at once do not ask at once.
	minPause = 200 * time.Millisecond
	maxPause = 8 * time.Second
	// stableWatchDuration is how long a watch must have been open for upstream to be well again.
	stableWatchDuration = 10 * time.Second
	// refusalTimeout is how long upstream may refuse to go on with a watch, for reasons that are over
	// soon as a rule (it starts, it has too much to do, its etcd is away), before its complete
	// state is requested instead.
	refusalTimeout = 15 * time.Second
	// maxBusyPause is the longest pause meanwhile, since an apiserver that begins takes a few seconds,
	// and between watches that do not last.
	maxBusyPause = time.Second
)

// pace is how long to wait before the next request upstream. It belongs to the goroutine that sends
// it.
type pace struct {
	first, longest time.Duration
	next           time.Duration // 0: first
}

// fail is how long to wait after a failure.
func (p *pace) fail() time.Duration {
	d := max(p.next, p.first)
	p.next = min(2*d, p.longest)
	return spread(d)
}

// well forgets the failures.
func (p *pace) well() { p.next = 0 }

// spread is about d, and not the same for all.
func spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d) // #nosec G404 -- spreads times
}
