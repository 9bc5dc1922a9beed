package clientconn

import "github.com/prometheus/client_golang/prometheus"

// ConnMetrics count connections.
type ConnMetrics struct {
	expelled *prometheus.CounterVec
	open     prometheus.Gauge
}

// NewConnMetrics makes the metrics of one Connections.
func NewConnMetrics() *ConnMetrics {
	m := &ConnMetrics{
		expelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_evicted_connections_total",
			Help: "Client connections that were closed because of a limit of connections, by state: " +
				"new (no whole request yet), idle, or over_limit (waiting for a 429).",
		}, []string{"state"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_client_connections", Help: "Connections that clients have.",
		}),
	}
	for _, phase := range []string{expelledArriving, expelledIdle, expelledSurplus} {
		m.expelled.WithLabelValues(phase)
	}
	return m
}

// Collectors are what is to be registered.
func (m *ConnMetrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.expelled, m.open}
}

// What a connection was doing that had to go: the label of a metric.
const (
	expelledArriving = "new"
	expelledIdle     = "idle"
	expelledSurplus  = "over_limit"
)
