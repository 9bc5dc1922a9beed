package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// Metrics count audit events.
type Metrics struct {
	events, failures, passed prometheus.Counter
}

// NewMetrics makes the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	on := metric.At(r)
	m := &Metrics{
		events: on.Counter("spillway_audit_events_total",
			"Audit events that were written."),
		failures: on.Counter("spillway_audit_failures_total",
			"Audit events that could not be written. With --audit-fail-closed, also events that could not "+
				"be written in time."),
		passed: on.Counter("spillway_audit_passthrough_requests_total",
			"Requests that passed through because their audit events could not be written."),
	}
	return m
}
