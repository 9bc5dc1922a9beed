package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/memory"
	"spillway/internal/serve"
)

// budget is what the process may use.
type budget struct {
	bytes int64         // 0: as much as it likes
	limit *memory.Limit // of what Go uses; nil: there is none
	err   error         // why it is not known
}

// applyBudget finds out what the process may use, tells the garbage collector, and lowers the limits that follow from it and were not set.
func (o *options) applyBudget() budget {
	bytes, err := memory.Budget(int64(o.memoryBudget))
	b := budget{bytes: bytes, limit: memory.NewLimit(bytes), err: err}
	if b.bytes == 0 && b.limit != nil {
		b.bytes = b.limit.Bytes()
	}
	o.divide(b.bytes)
	return b
}

// announce says what the process may use.
func (b budget) announce(log *zap.Logger) {
	switch {
	case b.err != nil:
		log.Warn("the memory limit of this container cannot be read: set --memory-budget if it has one", zap.Error(b.err))
	case b.limit != nil:
		log.Info("memory is limited", zap.Int64("budget", b.bytes), zap.Int64("goLimit", b.limit.Bytes()))
	}
}

// When what can be done without is given up: parts of the limit in use. The collector has to have some room, or it runs all the time; it is at
// its ease until three quarters.
const (
	encodingsAt = 0.70
	segmentsAt  = 0.74
	historyAt   = 0.78
	feedsAt     = 0.82
	selectorsAt = 0.84
	resourcesAt = 0.86
	answersAt   = 0.90
	clientsAt   = 0.94
)

// newGuard makes what watches over the memory.
func newGuard(limit *memory.Limit, m *mirrors, server *serve.Server, log *zap.Logger) *memory.Guard {
	return memory.NewGuard(limit, server.Outside, guardSteps(m, server), log)
}

// guardSteps are what can be done without, in order: what costs time alone to make again; then history, what is kept for few, and what is yet to
// be mirrored; and behind these two that keep what clients do from ending the process.
func guardSteps(m *mirrors, server *serve.Server) []memory.Step {
	return []memory.Step{
		{
			Name: "encodings", At: encodingsAt, Gone: "protobuf and metadata are made anew for each who asks",
			Take: m.forgoEncodings, Back: m.keepEncodings,
		},
		{
			Name: "segments", At: segmentsAt, Gone: "hardly anything that was compressed is kept",
			Take: m.forgoSegments, Back: m.keepSegments,
		},
		{
			Name: "history", At: historyAt, Gone: "no more history is kept than of 75s",
			Take: func() {}, Hold: m.shorten, Back: m.lengthen,
		},
		{
			Name: "feeds", At: feedsAt, Gone: "watches with a selector of their own read the log, each for itself",
			Take: func() {}, Hold: m.save, Back: m.spend,
		},
		{
			Name: "selectors", At: selectorsAt,
			Gone: "watches with selectors of more than 256 terms are ended, and hardly any begin",
			Take: func() { server.ShedSelectors(true) }, Back: func() { server.ShedSelectors(false) },
		},
		{
			Name: "resources", At: resourcesAt, Gone: "no other resource is mirrored on demand: requests pass through",
			Take: func() { m.full.Store(true) }, Hold: m.retreat, Back: func() { m.full.Store(false) },
		},
		{
			Name: "answers", At: answersAt, Gone: "large answers are made one after another",
			Take: func() { server.Economize(true) }, Back: func() { server.Economize(false) },
		},
		{
			Name: "clients", At: clientsAt, Gone: "clients that take nothing, or little of a large answer, are cut within seconds, the most expensive answer first",
			Take: func() { server.Hasten(true) }, Hold: server.EndSlow, Back: func() { server.Hasten(false) },
		},
	}
}

// memoryMetrics shows how the guard stands at the moment of a scrape.
type memoryMetrics struct {
	guard                      *memory.Guard
	mirrors                    *mirrors
	limit, inUse, taken, times *prometheus.Desc
	forms, turned              *prometheus.Desc
}

// newMemoryMetrics shows a guard; nil: there is no limit.
func newMemoryMetrics(guard *memory.Guard, m *mirrors) *memoryMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_memory_"+name, help, labels, nil)
	}
	return &memoryMetrics{
		guard: guard, mirrors: m,
		limit:  desc("limit_bytes", "What Go may use of --memory-budget, or of the container's limit, at present; 0 is no limit."),
		inUse:  desc("in_use_bytes", "What Go has in use of that, without garbage."),
		taken:  desc("degraded", "1 while something is given up since memory is short, by step.", "step"),
		times:  desc("degradations_total", "Times that it was given up, by step.", "step"),
		forms:  desc("encoded_bytes", "What is kept of what was made of objects, as --encoded-bytes counts it."),
		turned: desc("resources_refused_total", "Requests that passed through since memory was too short to mirror what they asked for."),
	}
}

// Describe implements prometheus.Collector.
func (c *memoryMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.limit, c.inUse, c.taken, c.times, c.forms, c.turned} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *memoryMetrics) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	send(c.forms, prometheus.GaugeValue, float64(c.mirrors.memo.Held()))
	send(c.turned, prometheus.CounterValue, float64(c.mirrors.turned.Load()))
	if c.guard == nil {
		send(c.limit, prometheus.GaugeValue, 0)
		return
	}
	state := c.guard.State()
	send(c.limit, prometheus.GaugeValue, float64(state.Limit))
	send(c.inUse, prometheus.GaugeValue, float64(state.InUse))
	for _, s := range state.Steps {
		taken := 0.0
		if s.Taken {
			taken = 1
		}
		send(c.taken, prometheus.GaugeValue, taken, s.Name)
		send(c.times, prometheus.CounterValue, float64(s.Times), s.Name)
	}
}
