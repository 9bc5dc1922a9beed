package clientconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// ConnMetrics count connections.
type ConnMetrics struct {
	expelled *prometheus.CounterVec
	open     prometheus.Gauge
}

// NewConnMetrics makes the metrics of one Connections and registers them; r may be nil.
func NewConnMetrics(r prometheus.Registerer) *ConnMetrics {
	on := metric.At(r)
	m := &ConnMetrics{
		expelled: on.CounterVec("spillway_evicted_connections_total",
			"Client connections that were closed because of a limit of connections, by state: "+
				"new (no whole request yet), idle, or over_limit (waiting for a 429).", "state"),
		open: on.Gauge("spillway_client_connections",
			"Connections that clients have."),
	}
	for _, phase := range []string{expelledArriving, expelledIdle, expelledSurplus} {
		m.expelled.WithLabelValues(phase)
	}
	return m
}

// What a connection was doing that had to go: the label of a metric.
const (
	expelledArriving = "new"
	expelledIdle     = "idle"
	expelledSurplus  = "over_limit"
)
