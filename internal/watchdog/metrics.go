package watchdog

import "github.com/prometheus/client_golang/prometheus"

// collector reads the figures of a clock at a scrape.
type collector struct {
	clock           *Monitor
	stalled, stalls *prometheus.Desc
}

// NewCollector shows the loops of a clock; it can be described without one.
func NewCollector(c *Monitor) prometheus.Collector {
	labels := []string{"loop"}
	return &collector{
		clock: c,
		stalled: prometheus.NewDesc("spillway_stalled_loops",
			"Loops of the process that have work and do not move. The log and /readyz?verbose name them.", labels, nil),
		stalls: prometheus.NewDesc("spillway_loop_stalls_total",
			"Times that a loop of the process had work and did not move for longer than it may. It should stay 0.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) {
	out <- m.stalled
	out <- m.stalls
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	now := map[LoopKind]int{}
	for _, s := range m.clock.Stalled() {
		now[s.LoopKind]++
	}
	m.clock.mu.Lock()
	defer m.clock.mu.Unlock()
	for _, kind := range Kinds() {
		out <- prometheus.MustNewConstMetric(m.stalled, prometheus.GaugeValue, float64(now[kind]), string(kind))
		out <- prometheus.MustNewConstMetric(m.stalls, prometheus.CounterValue, float64(m.clock.stalls[kind]), string(kind))
	}
}
