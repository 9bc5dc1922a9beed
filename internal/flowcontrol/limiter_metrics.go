package flowcontrol

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The limits, as the metrics call them.
const (
	LimitWatches     = "watches"
	LimitListBytes   = "list_bytes"
	LimitPassThrough = "passthrough"
	LimitSelectors   = "selectors"
)

// limitMetrics are what is told of limits. Their names follow kube-apiserver's
// apiserver_flowcontrol_….
type limitMetrics struct {
	refused *prometheus.CounterVec
	waited  *prometheus.HistogramVec
	loads   []prometheus.Collector
}

func newLimitMetrics() *limitMetrics {
	return &limitMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_flowcontrol_rejected_requests_total",
			Help: "Requests rejected by a limit: answered 429, or cancelled by the client while they waited.",
		}, []string{"limit", "reason"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillway_flowcontrol_request_wait_duration_seconds",
			Help:    "Time that requests spent waiting for a limit, those that were rejected in the end included.",
			Buckets: []float64{0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15},
		}, []string{"limit"}),
	}
}

// held and most are the gauges of what is held of each limit, and of the limit, in its own unit.
var held, most = map[string]prometheus.GaugeOpts{
	LimitWatches: {
		Name: "spillway_flowcontrol_current_watches",
		Help: "Watches, logs and connections that are open, from memory and passed through, as --max-watches counts them.",
	},
	LimitListBytes: {
		Name: "spillway_flowcontrol_current_list_bytes",
		Help: "Bytes of large lists and initial states that are being made and sent, as --max-list-bytes-in-flight counts " +
			"them.",
	},
	LimitPassThrough: {
		Name: "spillway_flowcontrol_current_passthrough_requests",
		Help: "Requests being passed through, as --max-passthrough-requests counts them.",
	},
	LimitSelectors: {
		Name: "spillway_flowcontrol_current_selector_terms",
		Help: "Terms of the label and field selectors of watches from memory, as --max-selector-terms-per-user counts " +
			"them; equal ones of one user count once.",
	},
}, map[string]prometheus.GaugeOpts{
	LimitWatches: {Name: "spillway_flowcontrol_limit_watches", Help: "The value of --max-watches; 0 is no limit."},
	LimitListBytes: {Name: "spillway_flowcontrol_limit_list_bytes",
		Help: "The value of --max-list-bytes-in-flight; 0 is no limit."},
	LimitPassThrough: {Name: "spillway_flowcontrol_limit_passthrough_requests",
		Help: "The value of --max-passthrough-requests; 0 is no limit."},
	LimitSelectors: {Name: "spillway_flowcontrol_limit_selector_terms",
		Help: "Terms that the selectors of all watches may have; 0 is no limit."},
}

// limit makes one of the limits of l.
func (m *limitMetrics) limit(name string, l *Limiter, o Options) *limit {
	gate := NewGate(o)
	l.loads[name] = gate.Load
	gauge := func(opts prometheus.GaugeOpts, value func(Load) float64) {
		m.loads = append(m.loads, prometheus.NewGaugeFunc(opts, func() float64 { return value(l.Load(name)) }))
	}
	gauge(held[name], func(l Load) float64 { return float64(l.Held) })
	gauge(most[name], func(l Load) float64 { return float64(l.Limit) })
	gauge(prometheus.GaugeOpts{
		Name:        "spillway_flowcontrol_current_inqueue_requests",
		Help:        "Requests that wait for a limit.",
		ConstLabels: prometheus.Labels{"limit": name},
	}, func(l Load) float64 { return float64(l.Waiting) })
	return &limit{gate: gate, open: l.open, refused: m.refuser(name), waited: m.waited.WithLabelValues(name)}
}

// selectors shows what selectors take.
func (m *limitMetrics) selectors(s *selections) {
	m.loads = append(m.loads,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_selector_bytes",
			Help: "Bytes of memory of the selectors that spillway_flowcontrol_current_selector_terms counts.",
		}, func() float64 { bytes, _ := s.load(); return float64(bytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_large_selectors",
			Help: "Distinct selectors of more than 256 terms or 8 KiB. A lane of their user dispatches to them.",
		}, func() float64 { _, heavy := s.load(); return float64(heavy) }))
}

// heads shows what large heads hold.
func (m *limitMetrics) heads(p *LargeHeads) {
	m.loads = append(m.loads,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_flowcontrol_current_header_bytes",
			Help: "Bytes of large request headers, as --max-large-header-bytes counts them.",
		}, func() float64 { return float64(p.Held()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spillway_flowcontrol_limit_header_bytes", Help: "The value of --max-large-header-bytes; 0 is no limit.",
		}, func() float64 { return float64(p.most) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_large_header_rejections_total",
			Help: "Requests answered 431 since --max-large-header-bytes was reached.",
		}, func() float64 { return float64(p.refused.Load()) }),
	)
}

// refuser counts refusals of a limit. Each reason is there from the start.
func (m *limitMetrics) refuser(name string) func(Reason) {
	by := map[Reason]prometheus.Counter{}
	for _, reason := range Reasons {
		by[reason] = m.refused.WithLabelValues(name, string(reason))
	}
	return func(r Reason) { by[r].Inc() }
}

func (m *limitMetrics) register(r prometheus.Registerer) {
	r.MustRegister(m.refused, m.waited)
	r.MustRegister(m.loads...)
}
