package memory

import "github.com/prometheus/client_golang/prometheus"

// collector reads the guard at a scrape.
type collector struct {
	guard            *Guard // nil: there is no limit
	encoded, refused func() int64

	limit, inUse, degraded, degradations *prometheus.Desc
	encodingBytes, mirrorExceeded        *prometheus.Desc
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
			"Bytes of --memory-budget, or of the limit of the container, that Go may use. 0 is no limit."),
		inUse: desc("spillway_memory_in_use_bytes",
			"Bytes that Go uses of spillway_memory_limit_bytes, without garbage."),
		degraded: desc("spillway_memory_degraded",
			"1 while a step of memory degradation is in effect: derived, history, evict.", "step"),
		degradations: desc("spillway_memory_degradations_total", "Times that the step took effect.", "step"),
		encodingBytes: desc("spillway_encoding_cache_bytes",
			"Bytes of cached encodings, as --encoding-cache-bytes counts them."),
		mirrorExceeded: desc("spillway_mirror_memory_exceeded_total",
			"Requests that passed through because memory was too short to mirror their resource."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.limit, c.inUse, c.degraded, c.degradations, c.encodingBytes, c.mirrorExceeded,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	send(c.encodingBytes, prometheus.GaugeValue, float64(c.encoded()))
	send(c.mirrorExceeded, prometheus.CounterValue, float64(c.refused()))
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
		send(c.degraded, prometheus.GaugeValue, taken, s.String())
		send(c.degradations, prometheus.CounterValue, float64(state.Times[s]), s.String())
	}
}
