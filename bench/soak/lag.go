package main

import (
	"slices"
	"time"
)

// delivery is one event that one watch received: when its write was acknowledged, and how long
// after.
type delivery struct {
	acked time.Time
	lag   time.Duration
}

// deliveries are those of all events whose acknowledgement is known, by that. An event that comes
// before it has no lag.
func deliveries(writes []write, seen []receivedEvent) []delivery {
	acked := map[uint64]time.Time{}
	for _, w := range writes {
		if w.rv != 0 && w.answered {
			acked[w.rv] = w.at
		}
	}
	var all []delivery
	for _, s := range seen {
		if at, known := acked[s.rv]; known && s.kind != deleted {
			all = append(all, delivery{at, max(0, s.at.Sub(at))})
		}
	}
	slices.SortFunc(all, func(a, b delivery) int { return a.acked.Compare(b.acked) })
	return all
}

// before cuts off those whose writes were acknowledged before a moment.
func before(all []delivery, end time.Time) (these, rest []delivery) {
	n, _ := slices.BinarySearchFunc(all, end, func(d delivery, end time.Time) int { return d.acked.Compare(end) })
	return all[:n], all[n:]
}

// percentile is that of the lags, 0 of none.
func percentile(all []delivery, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	lags := make([]time.Duration, len(all))
	for i, d := range all {
		lags[i] = d.lag
	}
	slices.Sort(lags)
	return lags[min(len(lags)*percent/100, len(lags)-1)]
}
