// Package metric declares metrics in one shape: name, help, labels.
//
// A name is written in full where its metric is declared, so that a search for it finds the code.
// No label names a namespace, an object, a user or a selector (design D16). Collectors that compute
// their values at a scrape use prometheus.NewDesc; promauto declares histograms.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Registry registers each metric that it makes. Without a Registerer it only makes them.
type Registry struct {
	promauto.Factory
	at prometheus.Registerer
}

// At makes metrics that are registered at r, which may be nil.
func At(r prometheus.Registerer) Registry { return Registry{promauto.With(r), r} }

// Add registers a collector.
func (r Registry) Add(c prometheus.Collector) {
	if r.at != nil {
		r.at.MustRegister(c)
	}
}

// Counter makes a counter.
func (r Registry) Counter(name, help string) prometheus.Counter {
	return r.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// CounterFunc makes a counter whose value is read at a scrape.
func (r Registry) CounterFunc(name, help string, value func() float64) {
	r.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
}

// CounterVec makes a counter with labels.
func (r Registry) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return r.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge makes a gauge.
func (r Registry) Gauge(name, help string) prometheus.Gauge {
	return r.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeFunc makes a gauge whose value is read at a scrape.
func (r Registry) GaugeFunc(name, help string, value func() float64) {
	r.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// GaugeVec makes a gauge with labels.
func (r Registry) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return r.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}
