package watch

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/source"
)

// sentBytesCollector shows the bytes sent on watches, by resource. It adds up open and ended
// watches at a scrape: so a long watch shows in every scrape, and a delivery updates only its own
// stream.
type sentBytesCollector struct {
	desc *prometheus.Desc
	sums func() map[string]int64 // nil: there is no manager
}

func newSentBytesCollector() *sentBytesCollector {
	return &sentBytesCollector{desc: prometheus.NewDesc("spillway_watch_sent_bytes_total",
		"Bytes sent on watches, open and ended, before encryption.",
		[]string{"resource"}, nil)}
}

// Describe implements prometheus.Collector.
func (b *sentBytesCollector) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

// Collect implements prometheus.Collector.
func (b *sentBytesCollector) Collect(out chan<- prometheus.Metric) {
	if b.sums == nil {
		return
	}
	for resource, sum := range b.sums() {
		out <- prometheus.MustNewConstMetric(b.desc, prometheus.CounterValue, float64(sum), resource)
	}
}

// sentByResource is how many bytes were sent on watches, by resource. It never decreases: the bytes
// of a stream that was found open are read afterwards, and those of one that was not are in the
// sum.
func (m *Manager) sentByResource() map[string]int64 {
	m.mu.Lock()
	sums := maps.Clone(m.mu.sentBytes)
	open := slices.Collect(maps.Keys(m.mu.streams))
	m.mu.Unlock()
	bySource := map[*source.Source]int64{} // first, so that a resource is named once
	for _, st := range open {
		bySource[st.source] += st.sentBytes.Load()
	}
	for source, sum := range bySource {
		sums[source.Resource().Info.String()] += sum
	}
	return sums
}
