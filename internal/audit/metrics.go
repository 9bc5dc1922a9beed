package audit

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what is put on record.
type Metrics struct {
	events, failures, passed prometheus.Counter
}

// NewMetrics makes the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_audit_events_total", Help: "Audit events that were written.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_audit_failures_total",
			Help: "Audit events that could not be written; with --audit-fail-closed, or not in time.",
		}),
		passed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_audit_passthrough_requests_total",
			Help: "Requests that passed through since their audit events could not be written.",
		}),
	}
	if r != nil {
		r.MustRegister(m.events, m.failures, m.passed)
	}
	return m
}

// Passed counts a request that was passed through since its events could not be written.
func (l *Trail) Passed() { l.metrics.passed.Inc() }
