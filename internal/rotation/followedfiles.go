package rotation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// FollowedFiles is the files that the process reloads when they change, of all that use them: the
// transports of upstream, the listeners, and the verification of client certificates.
type FollowedFiles struct {
	mu   sync.Mutex
	from []func() []FileState
}

// Add adds the states of some files.
func (f *FollowedFiles) Add(states func() []FileState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = append(f.from, states)
}

// States are those of all files.
func (f *FollowedFiles) States() []FileState {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []FileState
	for _, states := range f.from {
		all = append(all, states()...)
	}
	return all
}

// Ready names a file whose current content is not in use. The proxy stays ready: the previous
// content is in use.
func (f *FollowedFiles) Ready() (detail string, err error) {
	for _, s := range f.States() {
		if s.Err != nil {
			detail = "what was read at " + s.Since.UTC().Format("2006-01-02 15:04:05") + " is in use still: " + s.Err.Error()
			return detail, nil //nolint:nilerr // it is the detail
		}
	}
	return "", nil
}

// collector reads the states of the files at a scrape.
type collector struct {
	files                     *FollowedFiles
	changes, refused, expires *prometheus.Desc
}

// NewCollector shows the states of f's files.
func NewCollector(f *FollowedFiles) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"file", "use"}, nil)
	}
	return &collector{
		files:   f,
		changes: desc("spillway_file_reloads_total", "Times that a changed file was loaded since the start."),
		refused: desc("spillway_file_reload_failed", "1 while a file cannot be used, and its previous content is in use."),
		expires: desc("spillway_file_expiry_timestamp_seconds",
			"Expiry of the certificate in use from a file, in Unix seconds; of authorities, the latest."),
	}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) {
	out <- m.changes
	out <- m.refused
	out <- m.expires
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	type series struct{ file, use string }
	seen := map[series]bool{} // two identities may have a file in common
	for _, s := range m.files.States() {
		if seen[series{s.File, s.Use}] {
			continue
		}
		seen[series{s.File, s.Use}] = true
		refused := 0.0
		if s.Err != nil {
			refused = 1
		}
		out <- prometheus.MustNewConstMetric(m.changes, prometheus.CounterValue, float64(s.Changes), s.File, s.Use)
		out <- prometheus.MustNewConstMetric(m.refused, prometheus.GaugeValue, refused, s.File, s.Use)
		if !s.Expires.IsZero() {
			out <- prometheus.MustNewConstMetric(m.expires, prometheus.GaugeValue, float64(s.Expires.Unix()), s.File, s.Use)
		}
	}
}
