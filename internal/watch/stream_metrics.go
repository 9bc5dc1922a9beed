package watch

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/clientconn"
)

// StreamMetrics count watches. Labels never name a namespace, an object, a user or a selector
// (design D16).
type StreamMetrics struct {
	streams    *prometheus.GaugeVec
	ends       *prometheus.CounterVec
	sent       *sentBytes
	lags       *lags
	waiting    prometheus.GaugeFunc
	backfilled *prometheus.CounterVec
	unfilled   *prometheus.CounterVec
	haste      *clientconn.EvictionPolicy // of the manager; nil: there is none
}

// NewStreamMetrics makes the metrics of one manager.
func NewStreamMetrics() *StreamMetrics {
	m := &StreamMetrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_watches", Help: "Watches that are being served from memory, by their encoding.",
		}, []string{"resource", "encoding"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_watch_terminations_total",
			Help: "Watches that ended, by reason. Evictions of slow clients have the reasons slow_client_….",
		}, []string{"resource", "reason"}),
		sent: newSentBytes(),
		lags: newLags(),
	}
	m.backfilled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_backfilled_watches_total",
		Help: "Watches that resumed from before the history in memory: the apiserver sent the events that were missing.",
	}, []string{"resource"})
	m.unfilled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_backfill_failures_total",
		Help: "Watches whose backfill failed: the apiserver no longer has the events (resource_version_expired), too many " +
			"backfills were under way (concurrency_limit), or the client read too slowly (slow_client).",
	}, []string{"resource", "reason"})
	m.waiting = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_slow_client_watches",
		Help: "Watches whose client reads too slowly: the socket is full. Such a watch holds one frame, and is evicted " +
			"after --stall-timeout.",
	}, m.parked)
	return m
}

// Collectors are what is to be registered.
func (m *StreamMetrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.lags, m.waiting, m.streams, m.ends, m.sent, m.backfilled, m.unfilled}
}

// follow shows what a manager does at the moment of a scrape. Called once, before there is one.
func (m *StreamMetrics) follow(w *Manager) {
	m.sent.sums, m.lags.groups, m.haste = w.sent, w.lags, w.haste
}

// parked is how many watches wait for their clients.
func (m *StreamMetrics) parked() float64 {
	if m.haste == nil {
		return 0
	}
	return float64(m.haste.Parked())
}

// Introduce makes the counters of a resource, so that what has never happened is 0 and not absent.
func (m *StreamMetrics) Introduce(resource string) {
	m.backfilled.WithLabelValues(resource)
	for _, reason := range EndReasons {
		m.ends.WithLabelValues(resource, string(reason))
	}
	for _, reason := range unfilledReasons {
		m.unfilled.WithLabelValues(resource, string(reason))
	}
}
