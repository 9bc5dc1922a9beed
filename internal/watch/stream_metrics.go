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
			Name: "spillway_watch_streams", Help: "Watches that are being served from memory, by their encoding.",
		}, []string{"resource", "encoding"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_watch_ends_total", Help: "Watches that ended, by the one reason why.",
		}, []string{"resource", "reason"}),
		sent: newSentBytes(),
		lags: newLags(),
	}
	m.backfilled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_backfill_streams_total",
		Help: "Watches that got events from before the history in memory by a watch upstream, and went on from there.",
	}, []string{"resource"})
	m.unfilled = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_backfill_refusals_total",
		Help: "Watches that resumed from before the history in memory and failed: upstream does not have it either " +
			"(expired), too many others were being served (busy), or their client did not keep up (behind).",
	}, []string{"resource", "reason"})
	m.waiting = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_watch_streams_waiting",
		Help: "Watches with a full socket, since the client does not read. Each costs the frame that is being sent, and " +
			"ends after --stall-timeout.",
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
