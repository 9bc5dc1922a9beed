package watch

import (
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

// sentByResource is what watches have been sent, by resource. It never gets less: what a stream has
// sent is read after it was found open, and is all in the sum of the others once it is not.
func (m *Manager) sentByResource() map[string]int64 {
	m.mu.Lock()
	sums := make(map[string]int64, len(m.mu.sentBytes))
	for resource, sum := range m.mu.sentBytes {
		sums[resource] = sum
	}
	open := make([]*Stream, 0, len(m.mu.streams))
	for st := range m.mu.streams {
		open = append(open, st)
	}
	m.mu.Unlock()
	of := map[*source.Source]int64{}
	for _, st := range open {
		of[st.source] += st.sentBytes.Load()
	}
	for source, sum := range of {
		sums[source.Resource().Info.String()] += sum
	}
	return sums
}
