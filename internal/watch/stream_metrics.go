package watch

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// StreamMetrics count watches. Labels never name a namespace, an object, a user or a selector
// (design D16).
type StreamMetrics struct {
	streams          *prometheus.GaugeVec
	ends             *prometheus.CounterVec
	sent             *sentBytesCollector
	lags             *lagCollector
	backfills        *prometheus.CounterVec
	backfillFailures *prometheus.CounterVec
	slow             func() int // nil: there is no manager
}

// NewStreamMetrics makes the metrics of one manager and registers them; r may be nil.
func NewStreamMetrics(r prometheus.Registerer) *StreamMetrics {
	on := metric.At(r)
	m := &StreamMetrics{
		lags: newLagCollector(),
		streams: on.GaugeVec("spillway_watches",
			"Watches that are being served from memory, by their encoding.", "resource", "encoding"),
		ends: on.CounterVec("spillway_watch_terminations_total",
			"Watches that ended, by reason. If a slow client was evicted, the reason begins with "+
				"slow_client_.", "resource", "reason"),
		sent: newSentBytesCollector(),
		backfills: on.CounterVec("spillway_backfilled_watches_total",
			"Watches that resumed from before the history in memory. The API server sent the missing "+
				"events.",
			"resource"),
		backfillFailures: on.CounterVec("spillway_backfill_failures_total",
			"Watches whose backfill failed, by reason. resource_version_expired: the API server no longer "+
				"has the events. concurrency_limit: too many backfills were under way. slow_client: the client "+
				"read too slowly.",
			"resource", "reason"),
	}
	on.Add(m.lags)
	on.Add(m.sent)
	on.GaugeFunc("spillway_slow_client_watches",
		"Watches whose client reads too slowly: the socket is full, or a write has waited for 1 s. "+
			"A live watch holds one frame meanwhile. It is evicted if its client takes nothing for "+
			"--stall-timeout, or for 2 s while memory is short.", m.slowClients)
	return m
}

// follow shows what a manager does at the moment of a scrape. Called once, before there is one.
func (m *StreamMetrics) follow(w *Manager) {
	m.sent.sums, m.lags.groups, m.slow = w.sentByResource, w.lagGroups, w.slowClients
}

// slowClients is how many watches wait for their clients.
func (m *StreamMetrics) slowClients() float64 {
	if m.slow == nil {
		return 0
	}
	return float64(m.slow())
}

// Introduce makes the counters of a resource, so that what has never happened is 0 and not absent.
func (m *StreamMetrics) Introduce(resource string) {
	m.backfills.WithLabelValues(resource)
	for _, reason := range EndReasons {
		m.ends.WithLabelValues(resource, string(reason))
	}
	for _, reason := range backfillFailures {
		m.backfillFailures.WithLabelValues(resource, string(reason))
	}
}
