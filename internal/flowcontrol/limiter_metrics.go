package flowcontrol

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// The limits, as the metrics call them: the name says what a limit counts.
const (
	LimitWatches       = "watches"
	LimitListBytes     = "list_bytes"
	LimitPassThrough   = "passthrough_requests"
	LimitSelectorTerms = "selector_terms"
	LimitHeaderBytes   = "header_bytes"
)

// limitMetrics are the metrics of all limits. Their names follow kube-apiserver's
// apiserver_flowcontrol_….
type limitMetrics struct {
	metric.Registry
	rejected *prometheus.CounterVec
	waited   *prometheus.HistogramVec
}

func newLimitMetrics(r prometheus.Registerer) *limitMetrics {
	on := metric.At(r)
	return &limitMetrics{
		Registry: on,
		rejected: on.CounterVec("spillway_flowcontrol_rejected_requests_total",
			"Requests that a limit rejected: answered 429, for header_bytes 431, or cancelled by the client while "+
				"they waited.", "limit", "reason"),
		waited: on.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillway_flowcontrol_request_wait_duration_seconds",
			Help:    "Time that requests waited for a limit, including requests that were rejected in the end.",
			Buckets: []float64{0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15},
		}, []string{"limit"}),
	}
}

// showStats shows the load of a limit.
func (m *limitMetrics) showStats(name string, stats func() GateStats) {
	m.showUse(name, func() float64 { return float64(stats().Held) }, func() float64 { return float64(stats().Limit) })
	m.gaugeOf(name, "spillway_flowcontrol_current_inqueue_requests", "Requests that wait for a limit.",
		func() float64 { return float64(stats().Waiting) })
}

// showUse shows what is in use of a limit, and the limit.
func (m *limitMetrics) showUse(name string, inUse, limit func() float64) {
	m.gaugeOf(name, "spillway_flowcontrol_in_use",
		"What is in use of a limit: watches, bytes, requests or terms, as the name of the limit says.", inUse)
	m.gaugeOf(name, "spillway_flowcontrol_limit", "The value of a limit. 0 is no limit.", limit)
}

// gaugeOf shows a value of a limit.
func (m *limitMetrics) gaugeOf(limit, name, help string, value func() float64) {
	m.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"limit": limit}}, value)
}

// showSelectors shows the size of the selectors.
func (m *limitMetrics) showSelectors(s *selections) {
	m.GaugeFunc("spillway_selector_bytes",
		`Bytes of memory of the selectors that spillway_flowcontrol_in_use{limit="selector_terms"} counts.`,
		func() float64 { bytes, _ := s.load(); return float64(bytes) })
	m.GaugeFunc("spillway_large_selectors",
		"Distinct selectors of more than 256 terms or 8 KiB. A lane of their user dispatches to them.",
		func() float64 { _, heavy := s.load(); return float64(heavy) })
}

// showHeads shows the bytes of the large heads of requests.
func (m *limitMetrics) showHeads(p *HeaderBudget) {
	m.showUse(LimitHeaderBytes, func() float64 { return float64(p.HeldBytes()) },
		func() float64 { return float64(p.most) })
}

// refusalCounter counts what a limit rejects. Each reason is there from the start.
func (m *limitMetrics) refusalCounter(name string) func(Reason) {
	by := map[Reason]prometheus.Counter{}
	for _, reason := range Reasons {
		by[reason] = m.rejected.WithLabelValues(name, string(reason))
	}
	return func(r Reason) { by[r].Inc() }
}
