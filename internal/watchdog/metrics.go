package watchdog

import "github.com/prometheus/client_golang/prometheus"

// collector reads the figures of a Monitor at a scrape.
type collector struct {
	monitor         *Monitor // nil: only Describe is called
	stalled, stalls *prometheus.Desc
}

// NewCollector shows the loops of a Monitor; it can be described without one.
func NewCollector(monitor *Monitor) prometheus.Collector {
	labels := []string{"loop"}
	return &collector{
		monitor: monitor,
		stalled: prometheus.NewDesc("spillway_stalled_loops",
			"Loops of the process that have work and do not move. The log and /readyz?verbose name them.", labels, nil),
		stalls: prometheus.NewDesc("spillway_loop_stalls_total",
			"Times that a loop of the process had work and did not move for longer than its limit. It "+
				"should stay 0.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.stalled
	out <- c.stalls
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	now := map[LoopKind]int{}
	for _, s := range c.monitor.Stalled() {
		now[s.LoopKind]++
	}
	c.monitor.mu.Lock()
	defer c.monitor.mu.Unlock()
	for _, kind := range Kinds() {
		out <- prometheus.MustNewConstMetric(c.stalled, prometheus.GaugeValue, float64(now[kind]), string(kind))
		out <- prometheus.MustNewConstMetric(c.stalls, prometheus.CounterValue, float64(c.monitor.stalls[kind]), string(kind))
	}
}
