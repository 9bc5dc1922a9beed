package mirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reads the figures of all mirrors at a scrape.
type collector struct {
	mirrors    *Set
	states     *stateMetrics
	capability capabilityMetrics
	gauges     []mirrorMetric
}

// mirrorMetric is one figure of each mirror.
type mirrorMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*mirror) float64
}

// NewCollector shows the mirrors of a set; it can be described without one.
func NewCollector(s *Set) prometheus.Collector {
	metric := func(kind prometheus.ValueType, name, help string, value func(*mirror) float64) mirrorMetric {
		return mirrorMetric{desc: prometheus.NewDesc(name, help, []string{"resource", "version"}, nil),
			kind: kind, value: value}
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	return &collector{mirrors: s, states: newStateMetrics(s), capability: newCapabilityMetrics(), gauges: []mirrorMetric{
		metric(gauge, "spillway_mirror_objects",
			"Objects in memory.",
			func(m *mirror) float64 {
				if s := m.resource.Snapshot(); s != nil {
					return float64(s.Len())
				}
				return 0
			}),
		metric(gauge, "spillway_mirror_object_bytes",
			"Bytes of JSON of the objects in memory.",
			func(m *mirror) float64 {
				if s := m.resource.Snapshot(); s != nil {
					return float64(s.Bytes)
				}
				return 0
			}),
		metric(gauge, "spillway_mirror_resource_version",
			"The resourceVersion up to which the mirror is complete.",
			func(m *mirror) float64 { return float64(m.resource.CompleteRV()) }),
		metric(gauge, "spillway_mirror_contact_age_seconds",
			"Seconds since the API server last sent an event, a bookmark or a state for the mirror.",
			func(m *mirror) float64 { return time.Since(m.reflector.Status().Contact).Seconds() }),
		metric(gauge, "spillway_mirror_staleness_seconds",
			"Seconds since the state was last proven current, if the mirror has lost its watch. 0 while "+
				"the state is kept current, or is not served.",
			func(m *mirror) float64 {
				age, _ := m.age()
				return age.Seconds()
			}),
		metric(counter, "spillway_upstream_stalled_watches_total",
			"Mirror watches that sent nothing and were replaced, because the mirror could not be proven current.",
			func(m *mirror) float64 { return float64(m.silentWatches.Load()) }),
		metric(counter, "spillway_upstream_resource_version_regressions_total",
			"Mirror watches on which the API server returned to an older resourceVersion.",
			func(m *mirror) float64 { return float64(m.reflector.Status().Regressions) }),
		metric(counter, "spillway_consistency_checks_total",
			"Comparisons of a whole mirror with the state of the API server at the same resourceVersion.",
			func(m *mirror) float64 { return float64(m.comparisons.Load()) }),
		metric(counter, "spillway_consistency_check_mismatches_total",
			"Objects that differed from the API server's objects in consistency checks. It should stay 0.",
			func(m *mirror) float64 { return float64(m.differences.Load()) }),
		metric(gauge, "spillway_history_events",
			"Past events in memory.",
			func(m *mirror) float64 {
				n, _ := m.resource.Log().Span()
				return float64(n)
			}),
		metric(gauge, "spillway_history_span_seconds",
			"Seconds that the past events in memory reach back.",
			func(m *mirror) float64 {
				if _, since := m.resource.Log().Span(); !since.IsZero() {
					return time.Since(since).Seconds()
				}
				return 0
			}),
		metric(gauge, "spillway_history_bytes",
			"Bytes of the past events in memory, as --history-bytes counts them.",
			func(m *mirror) float64 { return float64(m.resource.Log().Bytes()) }),
		metric(counter, "spillway_upstream_lists_total",
			"LISTs and watch-lists of the complete state that the mirror requested.",
			func(m *mirror) float64 { return float64(m.reflector.Status().Replaces) }),
		metric(counter, "spillway_upstream_watches_total",
			"Mirror watches that the API server accepted.",
			func(m *mirror) float64 { return float64(m.reflector.Status().Watches) }),
		metric(counter, "spillway_upstream_failures_total",
			"Requests of the mirror that failed.",
			func(m *mirror) float64 { return float64(m.reflector.Status().Failures) }),
		metric(counter, "spillway_freshness_probes_total",
			"LISTs with limit=1 that read the current resourceVersion from the API server.",
			func(m *mirror) float64 { return float64(m.prober.Stats().Probes) }),
		metric(counter, "spillway_freshness_watches_total",
			"Short watches that proved a mirror current.",
			func(m *mirror) float64 { return float64(m.prober.Stats().Proofs) }),
		metric(counter, "spillway_freshness_state_lists_total",
			"LISTs of metadata that were compared with a mirror of at most 500 objects.",
			func(m *mirror) float64 { return float64(m.prober.Stats().States) }),
		metric(counter, "spillway_freshness_failures_total",
			"Freshness probes, watches and LISTs that failed or proved nothing.",
			func(m *mirror) float64 {
				s := m.prober.Stats()
				return float64(s.Failures + s.WithoutBookmark)
			}),
		metric(gauge, "spillway_backfill_active_upstream_watches",
			"Open upstream watches that supply clients with events older than the history in memory.",
			func(m *mirror) float64 {
				open, _ := m.backfillWatches()
				return float64(open)
			}),
		metric(counter, "spillway_backfill_upstream_watches_total",
			"Upstream watches that supplied clients with events older than the history in memory.",
			func(m *mirror) float64 {
				_, opened := m.backfillWatches()
				return float64(opened)
			}),
		metric(gauge, "spillway_feeds",
			"Combinations of selector and encoding that watches use.",
			func(m *mirror) float64 { return float64(m.hub.Feeds()) }),
		metric(gauge, "spillway_dispatch_lag_events",
			"Events that have arrived and are not dispatched yet.",
			func(m *mirror) float64 { return float64(m.hub.Lag()) }),
		metric(gauge, "spillway_dispatch_lanes",
			"Users and addresses with expensive selectors. Each of them has a goroutine that dispatches to "+
				"its watches.",
			func(m *mirror) float64 { return float64(m.hub.Lanes()) }),
		metric(gauge, "spillway_dispatch_lane_lag_events",
			"Events that have arrived, but that the slowest lane has not dispatched yet. The lag delays only "+
				"the lane's user.",
			func(m *mirror) float64 { return float64(m.hub.LaneLag()) }),
		metric(counter, "spillway_dispatch_selector_evaluations_total",
			"Evaluations of selectors by the dispatcher that all watches share.",
			func(m *mirror) float64 { return float64(m.hub.Stats().SelectorEvaluations.Load()) }),
		metric(counter, "spillway_dispatch_lane_selector_evaluations_total",
			"Evaluations of selectors by the lanes of single users.",
			func(m *mirror) float64 { return float64(m.hub.Stats().LaneSelectorEvaluations.Load()) }),
		metric(counter, "spillway_dispatched_events_total",
			"Events dispatched to feeds.",
			func(m *mirror) float64 { return float64(m.hub.Stats().Events.Load()) }),
		metric(counter, "spillway_encoded_frames_total",
			"Frames encoded for feeds. Each frame is encoded once, for all watches that share it.",
			func(m *mirror) float64 { return float64(m.hub.Stats().Frames.Load()) }),
		metric(counter, "spillway_replayed_frames_total",
			"Frames encoded for single watches that catch up from history.",
			func(m *mirror) float64 { return float64(m.hub.Stats().ReplayedFrames.Load()) }),
		metric(counter, "spillway_watch_events_total",
			"Events sent to watches, once for each watch.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().Shares.Load() + m.hub.Stats().ReplayedFrames.Load())
			}),
		metric(counter, "spillway_dispatch_stalls_total",
			"Dispatches that took a second or more. No client can delay a dispatch, so the counter stays 0.",
			func(m *mirror) float64 { return float64(m.hub.Stats().DispatchStalls.Load()) }),
		metric(counter, "spillway_feed_overruns_total",
			"Times that a watch fell behind its feed and continued from history.",
			func(m *mirror) float64 { return float64(m.hub.Stats().FeedOverruns.Load()) }),
	}}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	c.states.describe(out)
	c.capability.describe(out)
	for _, g := range c.gauges {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.states.collect(out)
	c.capability.collect(out, c.mirrors.Capabilities())
	for _, m := range c.mirrors.all() {
		for _, g := range c.gauges {
			out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(m), m.resource.Info.String(),
				m.resource.Info.GVR.Version)
		}
	}
}

// backfilled is how many backfill watches are open, and how many have been opened.
func (m *mirror) backfillWatches() (open, opened int64) {
	if m.backfills == nil {
		return 0, 0
	}
	return m.backfills.Watches()
}
