package upstream

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// minPause and maxPause are how long a mirror waits before its next request: the first time
	// after something that lasted, and at most. Each is made up to half as long again or as short,
	// so that mirrors which failed together do not retry together.
	minPause = 200 * time.Millisecond
	maxPause = 8 * time.Second
	// stableWatchDuration is how long a watch must have been open for pauses to be short again.
	stableWatchDuration = 10 * time.Second
	// refusalTimeout is how long upstream may refuse to go on with a watch, for reasons that are over
	// soon as a rule (it starts, it has too much to do, its etcd is unreachable), before its complete
	// state is requested instead.
	refusalTimeout = 15 * time.Second
	// maxBusyPause is the longest pause meanwhile, because an API server starts in a few seconds. It
	// is also the longest pause between watches that do not last.
	maxBusyPause = time.Second
)

// pauses are how long to wait before the next requests upstream: first, and then twice as long each
// time up to longest, spread. A copy starts from first again.
func pauses(first, longest time.Duration) wait.Backoff {
	const steps = 64 // enough to double any first pause up to any longest one
	return wait.Backoff{Duration: first / 2, Factor: 2, Jitter: 2, Steps: steps, Cap: longest / 2}
}

// spread is between half of d and half as long again.
func spread(d time.Duration) time.Duration { return wait.Jitter(d/2, 2) }
