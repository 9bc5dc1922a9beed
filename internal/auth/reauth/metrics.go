package reauth

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/auth"
	"spillway/internal/metric"
)

// CheckMetrics count checks of running watches and what came of them. Labels never name a user
// (design D16).
type CheckMetrics struct {
	checks   *prometheus.CounterVec
	watching *prometheus.GaugeVec
	held     prometheus.Gauge
	ends     *prometheus.CounterVec
	interval prometheus.Histogram
}

// NewMetrics makes the metrics and registers them; r may be nil. Counters whose labels are known
// begin at 0: a counter that appears with its first count shows no increase, and so raises no
// alert.
func NewMetrics(r prometheus.Registerer) *CheckMetrics {
	on := metric.At(r)
	m := &CheckMetrics{
		checks: on.CounterVec("spillway_reauthorizations_total",
			"Checks of the credentials and permissions of running watches, by result.", "check", "result"),
		watching: on.GaugeVec("spillway_reauthorization_targets",
			"Distinct credentials and permissions of running watches.", "check"),
		held: on.Gauge("spillway_paused_watches",
			"Paused watches: the API server did not answer in time whether they are still allowed."),
		ends: on.CounterVec("spillway_reauthorization_terminations_total",
			"Watches that were ended because they are no longer allowed, by reason.", "reason"),
		interval: on.NewHistogram(prometheus.HistogramOpts{
			Name:    "spillway_reauthorization_interval_seconds",
			Help:    "Time between two successful checks of a credential or a permission.",
			Buckets: []float64{1, 5, 10, 15, 20, 25, 26, 27, 28, 29, 30, 60},
		}),
	}
	for _, v := range auth.Verdicts {
		for _, k := range []kind{ofCredential, ofPermission} {
			m.checks.WithLabelValues(string(k), string(v))
		}
	}
	for _, e := range Ends {
		m.ends.WithLabelValues(string(e))
	}
	return m
}
