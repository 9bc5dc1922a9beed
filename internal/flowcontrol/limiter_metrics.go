package flowcontrol

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// The limits, as the metrics call them.
const (
	LimitWatches     = "watches"
	LimitListBytes   = "list_bytes"
	LimitPassThrough = "passthrough"
	LimitSelectors   = "selectors"
)

// limitMetrics are the metrics of all limits. Their names follow kube-apiserver's
// apiserver_flowcontrol_….
type limitMetrics struct {
	metric.Registry
	refused *prometheus.CounterVec
	waited  *prometheus.HistogramVec
}

func newLimitMetrics(r prometheus.Registerer) *limitMetrics {
	on := metric.At(r)
	return &limitMetrics{
		Registry: on,
		refused: on.CounterVec("spillway_flowcontrol_rejected_requests_total",
			"Requests rejected by a limit: answered 429, or cancelled by the client while they waited.", "limit", "reason"),
		waited: on.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillway_flowcontrol_request_wait_duration_seconds",
			Help:    "Time that requests waited for a limit, including requests that were rejected in the end.",
			Buckets: []float64{0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15},
		}, []string{"limit"}),
	}
}

// limitGauges are the name and the help of the gauges of each limit: what is in use, and the limit.
var limitGauges = map[string]struct{ current, currentHelp, limit, limitHelp string }{
	LimitWatches: {
		"spillway_flowcontrol_current_watches",
		"Open watches, logs and connections, from memory or passed through, as --max-watches counts them.",
		"spillway_flowcontrol_limit_watches",
		"The value of --max-watches. 0 is no limit.",
	},
	LimitListBytes: {
		"spillway_flowcontrol_current_list_bytes",
		"Bytes of large lists and initial states that are being made and sent, as --max-list-bytes-in-flight counts " +
			"them.",
		"spillway_flowcontrol_limit_list_bytes", "The value of --max-list-bytes-in-flight. 0 is no limit.",
	},
	LimitPassThrough: {
		"spillway_flowcontrol_current_passthrough_requests",
		"Requests being passed through, as --max-passthrough-requests counts them.",
		"spillway_flowcontrol_limit_passthrough_requests", "The value of --max-passthrough-requests. 0 is no limit.",
	},
	LimitSelectors: {
		"spillway_flowcontrol_current_selector_terms",
		"Terms of the label and field selectors of watches from memory, as --max-selector-terms-per-user " +
			"counts them. Equal selectors of one user count once.",
		"spillway_flowcontrol_limit_selector_terms", "Terms that the selectors of all watches may have. 0 is no limit.",
	},
}

// showStats shows the load of a limit.
func (m *limitMetrics) showStats(name string, stats func() GateStats) {
	gauges := limitGauges[name]
	m.GaugeFunc(gauges.current, gauges.currentHelp, func() float64 { return float64(stats().Held) })
	m.GaugeFunc(gauges.limit, gauges.limitHelp, func() float64 { return float64(stats().Limit) })
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "spillway_flowcontrol_current_inqueue_requests",
		Help:        "Requests that wait for a limit.",
		ConstLabels: prometheus.Labels{"limit": name},
	}, func() float64 { return float64(stats().Waiting) })
}

// showSelectors shows the size of the selectors.
func (m *limitMetrics) showSelectors(s *selections) {
	m.GaugeFunc("spillway_selector_bytes",
		"Bytes of memory of the selectors that spillway_flowcontrol_current_selector_terms counts.",
		func() float64 { bytes, _ := s.load(); return float64(bytes) })
	m.GaugeFunc("spillway_large_selectors",
		"Distinct selectors of more than 256 terms or 8 KiB. A lane of their user dispatches to them.",
		func() float64 { _, heavy := s.load(); return float64(heavy) })
}

// showHeads shows the size of the large request headers.
func (m *limitMetrics) showHeads(p *HeaderBudget) {
	m.GaugeFunc("spillway_flowcontrol_current_header_bytes",
		"Bytes of large request headers, as --max-large-header-bytes counts them.",
		func() float64 { return float64(p.HeldBytes()) })
	m.GaugeFunc("spillway_flowcontrol_limit_header_bytes", "The value of --max-large-header-bytes. 0 is no limit.",
		func() float64 { return float64(p.most) })
	m.CounterFunc("spillway_large_header_rejections_total",
		"Requests answered 431 because --max-large-header-bytes was reached.",
		func() float64 { return float64(p.refused.Load()) })
}

// refusalCounter counts refusals of a limit. Each reason is there from the start.
func (m *limitMetrics) refusalCounter(name string) func(Reason) {
	by := map[Reason]prometheus.Counter{}
	for _, reason := range Reasons {
		by[reason] = m.refused.WithLabelValues(name, string(reason))
	}
	return func(r Reason) { by[r].Inc() }
}
