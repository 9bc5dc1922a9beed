package clientconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// States of evicted connections: the values of a metric's label.
const (
	evictedNew       = "new"
	evictedIdle      = "idle"
	evictedUnproven  = "unproven"
	evictedLeaving   = "leaving"
	evictedOverLimit = "over_limit"
)

// ConnMetrics counts open and evicted connections.
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
				"new: no whole request yet. idle: between two requests. unproven: being answered or watched, without good "+
				"credentials so far. leaving: after GOAWAY. over_limit: waiting for a 429.", "state"),
		open: on.Gauge("spillway_client_connections",
			"Open client connections, without those over the limit."),
	}
	// At 0, so that the first eviction shows as an increase.
	for _, state := range []string{evictedNew, evictedIdle, evictedUnproven, evictedLeaving, evictedOverLimit} {
		m.evicted.WithLabelValues(state)
	}
	return m
}
