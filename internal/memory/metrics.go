package memory

import "github.com/prometheus/client_golang/prometheus"

// collector reads the guard at a scrape.
type collector struct {
	guard                      *Guard
	encoded                    func() int64
	refused                    func() int64
	limit, inUse, taken, times *prometheus.Desc
	forms, turned              *prometheus.Desc
}

// NewCollector shows a guard; nil: there is no limit. encoded is the size of the cached encodings.
// refused is the number of requests that passed through because memory was too short to mirror
// their resource.
func NewCollector(guard *Guard, encoded, refused func() int64) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		guard: guard, encoded: encoded, refused: refused,
		limit: desc("spillway_memory_limit_bytes",
			"Bytes that Go may use of --memory-budget, or of the limit of the container; 0 is no limit."),
		inUse: desc("spillway_memory_in_use_bytes", "Bytes that Go uses of it, without garbage."),
		taken: desc("spillway_memory_degraded",
			"1 while a step of memory degradation is in effect: derived, history, evict.", "step"),
		times: desc("spillway_memory_degradations_total", "Times that the step took effect.", "step"),
		forms: desc("spillway_encoding_cache_bytes", "Bytes of cached encodings, as --encoding-cache-bytes counts them."),
		turned: desc("spillway_memory_mirror_rejections_total",
			"Requests that passed through because memory was too short to mirror their resource."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.limit, c.inUse, c.taken, c.times, c.forms, c.turned} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	send(c.forms, prometheus.GaugeValue, float64(c.encoded()))
	send(c.turned, prometheus.CounterValue, float64(c.refused()))
	if c.guard == nil {
		send(c.limit, prometheus.GaugeValue, 0)
		return
	}
	state := c.guard.State()
	send(c.limit, prometheus.GaugeValue, float64(state.Limit))
	send(c.inUse, prometheus.GaugeValue, float64(state.InUse))
	for s := DropDerived; s < stepCount; s++ {
		taken := 0.0
		if s <= state.Step {
			taken = 1
		}
		send(c.taken, prometheus.GaugeValue, taken, s.String())
		send(c.times, prometheus.CounterValue, float64(state.Times[s]), s.String())
	}
}
