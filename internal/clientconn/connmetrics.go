package clientconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// ConnMetrics count connections.
type ConnMetrics struct {
	evicted *prometheus.CounterVec
	open    prometheus.Gauge
}

// NewConnMetrics makes the metrics of one Connections and registers them; r may be nil.
func NewConnMetrics(r prometheus.Registerer) *ConnMetrics {
	on := metric.At(r)
	m := &ConnMetrics{
		evicted: on.CounterVec("spillway_evicted_connections_total",
			"Client connections that were closed because of a limit of connections or of memory, by state. "+
				"new: no whole request yet. idle: between two requests. unproven: answered, without good "+
				"credentials so far. leaving: after GOAWAY. over_limit: waiting for a 429.", "state"),
		open: on.Gauge("spillway_client_connections",
			"Open client connections."),
	}
	for _, state := range []string{evictedNew, evictedIdle, evictedUnproven, evictedLeaving, evictedOverLimit} {
		m.evicted.WithLabelValues(state)
	}
	return m
}

// States of evicted connections: the values of a metric's label.
const (
	evictedNew       = "new"
	evictedIdle      = "idle"
	evictedUnproven  = "unproven"
	evictedLeaving   = "leaving"
	evictedOverLimit = "over_limit"
)
