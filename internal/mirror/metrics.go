package mirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the mirrors at the moment of a scrape: they count by themselves, and come and go.
type collector struct {
	mirrors *Set
	states  *stateMetrics
	gauges  []mirrorMetric
}

// mirrorMetric is one figure of each mirror.
type mirrorMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*mirror) float64
}

// NewCollector shows the mirrors of a set; it can be described without one.
func NewCollector(m *Set) prometheus.Collector {
	metric := func(kind prometheus.ValueType, name, help string, value func(*mirror) float64) mirrorMetric {
		return mirrorMetric{desc: prometheus.NewDesc("spillway_"+name, help, []string{"resource", "version"}, nil),
			kind: kind, value: value}
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	return &collector{mirrors: m, states: newStateMetrics(m), gauges: []mirrorMetric{
		metric(gauge, "mirror_synced", "1 once the resource's first complete state has arrived.", func(m *mirror) float64 {
			if m.resource.Ready() {
				return 1
			}
			return 0
		}),
		metric(gauge, "mirror_objects", "Objects in memory.", func(m *mirror) float64 {
			if s := m.resource.Snapshot(); s != nil {
				return float64(s.Len())
			}
			return 0
		}),
		metric(gauge, "mirror_object_bytes", "Bytes of JSON of the objects in memory.", func(m *mirror) float64 {
			if s := m.resource.Snapshot(); s != nil {
				return float64(s.Bytes)
			}
			return 0
		}),
		metric(gauge, "mirror_resource_version", "The resourceVersion that the mirror is complete through.",
			func(m *mirror) float64 {
				return float64(m.resource.Through())
			}),
		metric(gauge, "mirror_contact_age_seconds", "Seconds since upstream last sent something useful.",
			func(m *mirror) float64 {
				return time.Since(m.reflector.Status().Contact).Seconds()
			}),
		metric(gauge, "upstream_state_age_seconds",
			"Seconds since the state was last known to be upstream's, if nothing keeps it current; 0 while it is kept "+
				"current, or not served.",
			func(m *mirror) float64 {
				age, _ := m.age()
				return age.Seconds()
			}),
		metric(counter, "upstream_watches_replaced_total",
			"Mirror watches that were open and silent, and replaced since the mirror could not be proven current.",
			func(m *mirror) float64 { return float64(m.replaced.Load()) }),
		metric(counter, "upstream_regressions_total",
			"Mirror watches on which upstream went back to an older resourceVersion.", func(m *mirror) float64 {
				return float64(m.reflector.Status().Regressions)
			}),
		metric(counter, "cache_checks_total",
			"Comparisons of a whole mirror with upstream's state at the same resourceVersion.", func(m *mirror) float64 {
				return float64(m.checks.Load())
			}),
		metric(counter, "cache_differences_total",
			"Objects that were found to differ from upstream's in these comparisons. It should stay 0.",
			func(m *mirror) float64 {
				return float64(m.differing.Load())
			}),
		metric(gauge, "log_entries", "Past events in memory.", func(m *mirror) float64 {
			n, _ := m.resource.Log().Span()
			return float64(n)
		}),
		metric(gauge, "log_span_seconds", "Seconds that the past events in memory reach back.", func(m *mirror) float64 {
			if _, since := m.resource.Log().Span(); !since.IsZero() {
				return time.Since(since).Seconds()
			}
			return 0
		}),
		metric(gauge, "log_bytes", "Bytes of the past events in memory, as --history-bytes counts them.",
			func(m *mirror) float64 {
				return float64(m.resource.Log().Bytes())
			}),
		metric(counter, "upstream_lists_total", "Complete states that upstream was asked for.", func(m *mirror) float64 {
			return float64(m.reflector.Status().Replaces)
		}),
		metric(counter, "upstream_watches_total", "Mirror watches that upstream accepted.", func(m *mirror) float64 {
			return float64(m.reflector.Status().Watches)
		}),
		metric(counter, "upstream_failures_total", "Requests of the mirror that upstream failed.", func(m *mirror) float64 {
			return float64(m.reflector.Status().Failures)
		}),
		metric(counter, "probes_total", "LISTs with limit=1 that asked upstream how far it is.", func(m *mirror) float64 {
			return float64(m.prober.Stats().Probes)
		}),
		metric(counter, "proof_watches_total", "Short watches that proved a mirror fresh.", func(m *mirror) float64 {
			return float64(m.prober.Stats().Proofs)
		}),
		metric(counter, "proof_states_total", "Watch-lists as metadata that a mirror was compared with.",
			func(m *mirror) float64 {
				return float64(m.prober.Stats().States)
			}),
		metric(counter, "proofs_failed_total", "Probes, proof watches and comparisons that proved nothing.",
			func(m *mirror) float64 {
				s := m.prober.Stats()
				return float64(s.Failed + s.Unproven)
			}),
		metric(gauge, "backfill_watches",
			"Open upstream watches that supply clients with events from before the history in memory.", func(m *mirror) float64 {
				open, _ := m.backfilled()
				return float64(open)
			}),
		metric(counter, "backfill_watches_total",
			"Upstream watches that supplied clients with events from before the history in memory.", func(m *mirror) float64 {
				_, opened := m.backfilled()
				return float64(opened)
			}),
		metric(gauge, "feeds", "Distinct selectors and encodings that watches follow.", func(m *mirror) float64 {
			return float64(m.hub.Feeds())
		}),
		metric(gauge, "dispatch_lag_entries", "Events that have arrived and are not dispatched yet.",
			func(m *mirror) float64 { return float64(m.hub.Lag()) }),
		metric(gauge, "dispatch_lanes",
			"Users and addresses with costly selectors, which are dispatched by a goroutine for each.", func(m *mirror) float64 {
				return float64(m.hub.Lanes())
			}),
		metric(gauge, "dispatch_lane_lag_entries",
			"Events that have arrived and are not dispatched yet by the lane that is farthest behind. It delays its own user "+
				"alone.",
			func(m *mirror) float64 { return float64(m.hub.LaneLag()) }),
		metric(counter, "dispatch_evaluations_total",
			"Selectors that were asked about an event on the way to all watches.", func(m *mirror) float64 {
				return float64(m.hub.Stats().Asked.Load())
			}),
		metric(counter, "dispatch_lane_evaluations_total", "Selectors that were asked about an event aside.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().AskedAside.Load())
			}),
		metric(counter, "dispatched_events_total", "Events dispatched to feeds.", func(m *mirror) float64 {
			return float64(m.hub.Stats().Events.Load())
		}),
		metric(counter, "frames_total", "Frames made for feeds, once each however many watches share them.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().Frames.Load())
			}),
		metric(counter, "replayed_frames_total", "Frames made for single watches that caught up from the log.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().Replayed.Load())
			}),
		metric(counter, "deliveries_total", "Events made ready to be sent, once for each watch that they are for.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().Shares.Load() + m.hub.Stats().Replayed.Load())
			}),
		metric(counter, "dispatch_waits_total",
			"Dispatches that something held up for a second or more. Clients cannot, so this stays 0.", func(m *mirror) float64 {
				return float64(m.hub.Stats().Stalls.Load())
			}),
		metric(counter, "feed_laps_total", "Times a watch fell behind its feed and went on from the log.",
			func(m *mirror) float64 {
				return float64(m.hub.Stats().FeedLapped.Load())
			}),
	}}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	c.states.describe(out)
	for _, g := range c.gauges {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.states.collect(out)
	for _, m := range c.mirrors.all() {
		for _, g := range c.gauges {
			out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(m), m.resource.Info.String(),
				m.resource.Info.GVR.Version)
		}
	}
}

// backfilled is how many upstream watches tell of the past, and how many have been opened to.
func (m *mirror) backfilled() (open, opened int64) {
	if m.backfills == nil {
		return 0, 0
	}
	return m.backfills.Watches()
}
