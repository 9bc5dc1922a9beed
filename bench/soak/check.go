package main

import (
	"context"
	"time"

	"spillway/bench/rig"
)

const (
	streamsMetric = "spillway_watches"
	feedsMetric   = "spillway_feeds"
	endsMetric    = "spillway_watch_terminations_total"
	panicsMetric  = "spillway_panics_total"
	waitsMetric   = "spillway_dispatch_stalls_total"

	// slack is what may differ between two quiet moments: a connection or two upstream. Thousands of
	// visits leak more than that.
	slackGoroutines = 4
	slackFDs        = 2
	slackHeap       = 6 << 20  // the log is between half full and full, feeds start and end
	slackRSS        = 48 << 20 // the runtime gives memory back when it likes
)

// calm waits until nothing is served and the levels do not fall any more or, with a base, until
// they are back at it. It returns the last levels in any case: judge says what they mean.
func (s *show) calm(ctx context.Context, base *rig.Memory) (*rig.Memory, error) {
	var now rig.Memory
	var err error
	least := 1 << 30
	since := time.Now()
	rig.Eventually(ctx, settle, time.Second, func() bool {
		if now, err = s.proxy.Memory(ctx); err != nil || s.served(ctx) != 0 {
			return err != nil
		}
		if base != nil {
			return s.back(base, &now)
		}
		if level := now.Goroutines + now.FDs; level < least {
			least, since = level, time.Now()
		}
		return time.Since(since) > quiet
	})
	return &now, err
}

// quiet is longer than idle connections and workers are kept, except those upstream.
const quiet = 20 * time.Second

func (s *show) served(ctx context.Context) int {
	m, err := s.proxy.Metrics().Read(ctx, streamsMetric, feedsMetric)
	if err != nil {
		return -1
	}
	return int(m.Sum(streamsMetric) + m.Sum(feedsMetric))
}

// back reports that the levels are those of the base.
func (s *show) back(base, now *rig.Memory) bool {
	return now.Goroutines <= base.Goroutines+slackGoroutines && now.FDs <= base.FDs+slackFDs &&
		now.Heap <= base.Heap+slackHeap && now.RSS <= base.RSS+slackRSS
}

func (s *show) judge(base, end *rig.Memory) {
	r := s.report
	r.Check(end.Goroutines <= base.Goroutines+slackGoroutines, "no goroutines stay", "%d → %d", base.Goroutines,
		end.Goroutines)
	r.Check(end.FDs <= base.FDs+slackFDs, "no file descriptors stay", "%d → %d", base.FDs, end.FDs)
	r.Check(end.Heap <= base.Heap+slackHeap, "no memory stays", "heap %.1f → %.1f MiB after a collection",
		float64(base.Heap)/(1<<20), float64(end.Heap)/(1<<20))
	r.Check(end.RSS <= base.RSS+slackRSS, "the process does not grow", "RSS %.1f → %.1f MiB", float64(base.RSS)/(1<<20),
		float64(end.RSS)/(1<<20))
}

func (s *show) checkCounters(ctx context.Context) error {
	m, err := s.proxy.Metrics().Read(ctx, streamsMetric, feedsMetric, endsMetric, panicsMetric, waitsMetric)
	if err != nil {
		return err
	}
	r := s.report
	r.Check(m.Sum(streamsMetric) == 0 && m.Sum(feedsMetric) == 0, "no watches stay", "%s = %.0f, %s = %.0f", streamsMetric,
		m.Sum(streamsMetric), feedsMetric, m.Sum(feedsMetric))
	r.Check(m.Sum(panicsMetric) == 0 && s.proxy.Log.Count("BUG") == 0, "no bugs", "%s = %.0f; log levels %v", panicsMetric,
		m.Sum(panicsMetric), s.proxy.Log.Levels())
	r.Check(m.Sum(waitsMetric) == 0, "dispatch never waits", "%s = %.0f", waitsMetric, m.Sum(waitsMetric))
	r.Note("watches ended", "%v", m.By(endsMetric, "reason"))
	return nil
}
