package passthrough

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// codeClientGone is the metric's code for requests whose client left before there was an answer. It
// is never sent.
const codeClientGone = 499

// ForwardMetrics counts what passes through. The label kind is read, write, watch (watches and
// logs) or connect (upgrades and proxy subresources); code is the answer's status, 499 if the
// client left first.
type ForwardMetrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	upgrades prometheus.Gauge
}

// NewForwardMetrics returns the collectors, registered with reg; a nil reg registers nothing. It
// panics if they are registered there already, as all of Prometheus' Must functions do.
func NewForwardMetrics(reg prometheus.Registerer) *ForwardMetrics {
	on := metric.At(reg)
	m := &ForwardMetrics{
		requests: on.CounterVec("spillway_passthrough_requests_total",
			"Requests passed through to the API server, or rejected instead, by kind and status code. "+
				"The kind is read, write, watch or connect. The code is 499 if the client left first.", "kind", "code"),
		inFlight: on.GaugeVec("spillway_passthrough_requests_in_flight",
			"Requests being passed through, by kind.", "kind"),
		upgrades: on.Gauge("spillway_passthrough_upgraded_connections",
			"Open connections that have switched protocols (exec, attach, port-forward, WebSockets)."),
	}
	return m
}

func (m *ForwardMetrics) countAnswer(c class, code int) {
	m.requests.WithLabelValues(c.String(), strconv.Itoa(code)).Inc()
}
