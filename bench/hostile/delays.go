package main

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"spillway/bench/rig"
)

// sample is how long events took from their write to their watch, the shortest first, and how many
// were written.
type sample struct {
	delays  []time.Duration
	written int
}

func newSample(delays []time.Duration, written int) *sample {
	slices.Sort(delays)
	return &sample{delays, written}
}

// at is a percentile.
func (s *sample) at(percent int) time.Duration {
	n := len(s.delays)
	if n == 0 {
		return 0
	}
	return s.delays[min(n*percent/100, n-1)].Round(10 * time.Microsecond)
}

// complete reports that every event has arrived.
func (s *sample) complete() bool { return len(s.delays) == s.written }

// read reads stamped events until their watch ends.
func read(watch *rig.Watch) (all []time.Duration) {
	for {
		e, err := watch.Next()
		if err != nil {
			return all
		}
		_, rest, stamped := bytes.Cut(e.Line, []byte(rig.StampPrefix))
		const digits = 19
		if !stamped || len(rest) < digits {
			continue
		}
		if nanos, err := strconv.ParseInt(string(rest[:digits]), 10, 64); err == nil {
			all = append(all, e.At.Sub(time.Unix(0, nanos)))
		}
	}
}
