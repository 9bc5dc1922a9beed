package memory

import "github.com/prometheus/client_golang/prometheus"

// collector shows how the guard stands at the moment of a scrape.
type collector struct {
	guard                      *Guard
	encoded                    func() int64
	refused                    func() int64
	limit, inUse, taken, times *prometheus.Desc
	forms, turned              *prometheus.Desc
}

// NewCollector shows a guard; nil: there is no limit. encoded is how many bytes are kept of what
// was made of objects, and refused how many requests passed through since memory was too short to
// mirror what they are for.
func NewCollector(guard *Guard, encoded, refused func() int64) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_memory_"+name, help, labels, nil)
	}
	return &collector{
		guard: guard, encoded: encoded, refused: refused,
		limit: desc("limit_bytes",
			"What Go may use of --memory-budget, or of the container's limit, at present; 0 is no limit."),
		inUse: desc("in_use_bytes", "What Go has in use of that, without garbage."),
		taken: desc("degraded", "1 while a step of memory degradation is taken, by step: derived, history, evict.", "step"),
		times: desc("degradations_total", "Times that it was taken, by step.", "step"),
		forms: desc("encoded_bytes", "What is kept of what was made of objects, as --encoded-bytes counts it."),
		turned: desc("resources_refused_total",
			"Requests that passed through since memory was too short to mirror what they asked for."),
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
