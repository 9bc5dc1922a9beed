package logging

import "github.com/prometheus/client_golang/prometheus"

// NewCollector counts the lines that s drops.
func NewCollector(s *Output) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "spillway_log_lines_dropped_total",
		Help: "Log lines that were dropped because the reader of stderr took none. It should stay 0.",
	}, func() float64 { return float64(s.Dropped()) })
}
