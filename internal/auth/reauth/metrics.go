package reauth

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/auth"
)

// CheckMetrics count checks of running watches and what came of them. Labels never name a user
// (design D16).
type CheckMetrics struct {
	checks   *prometheus.CounterVec
	watching *prometheus.GaugeVec
	held     prometheus.Gauge
	ends     *prometheus.CounterVec
	age      prometheus.Histogram
}

// NewMetrics makes the metrics and registers them; r may be nil. Counters whose labels are known
// begin at 0: a counter that appears with its first count shows no increase, and so raises no
// alert.
func NewMetrics(r prometheus.Registerer) *CheckMetrics {
	m := &CheckMetrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_reauthorizations_total",
			Help: "Checks of the credentials and permissions of running watches, by result.",
		}, []string{"check", "result"}),
		watching: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_reauthorization_targets", Help: "Distinct credentials and permissions of running watches.",
		}, []string{"check"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_paused_watches",
			Help: "Watches that are paused: the apiserver did not answer in time whether they are still allowed.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_reauthorization_terminations_total",
			Help: "Watches that were ended because they are no longer allowed, by reason.",
		}, []string{"reason"}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "spillway_reauthorization_age_seconds",
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
	if r != nil {
		r.MustRegister(m.checks, m.watching, m.held, m.ends, m.age)
	}
	return m
}
