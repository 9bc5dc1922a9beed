package swarm

import (
	"slices"
	"time"
)

// Delays are delays in order, in microseconds.
type Delays []int32

func newDelays(unsorted []int32) Delays {
	sorted := slices.Clone(unsorted)
	slices.Sort(sorted)
	return sorted
}

// At is a percentile, 0 of none.
func (d Delays) At(percent int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return time.Duration(d[min(len(d)*percent/100, len(d)-1)]) * time.Microsecond
}
