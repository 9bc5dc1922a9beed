package rotation

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// FollowedFiles are all files that the process reloads when they change: those of the transports,
// of the listeners, and of the verification of client certificates.
type FollowedFiles struct {
	mu   sync.Mutex
	from []func() []FileState // for each user of files
}

// Add adds the states of some files.
func (f *FollowedFiles) Add(states func() []FileState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = append(f.from, states)
}

// States are those of all files. It may read files, with the bound of ReadBounded for each.
func (f *FollowedFiles) States() []FileState {
	f.mu.Lock()
	from := slices.Clone(f.from)
	f.mu.Unlock()
	var all []FileState
	for _, states := range from {
		all = append(all, states()...)
	}
	return all
}

// DescribeUnused names a file whose current content is not in use, and why. The previous content is
// in use then. Empty: there is no such file.
func (f *FollowedFiles) DescribeUnused() string {
	for _, s := range f.States() {
		if s.Err != nil {
			return "what was read at " + s.Since.UTC().Format(time.DateTime) + " is in use still: " + s.Err.Error()
		}
	}
	return ""
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
		changes: desc("spillway_file_reloads_total", "Times that a changed file was loaded."),
		refused: desc("spillway_file_reload_failed", "1 while a file cannot be used, and its previous content is in use."),
		expires: desc("spillway_file_expiry_timestamp_seconds",
			"Expiry of the certificate in use from a file, in Unix seconds. If the file has several "+
				"authorities, the latest expiry counts."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.changes
	out <- c.refused
	out <- c.expires
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	type series struct{ file, use string }
	collected := map[series]bool{} // two identities may have a file in common
	for _, s := range c.files.States() {
		if collected[series{s.File, s.Use}] {
			continue
		}
		collected[series{s.File, s.Use}] = true
		refused := 0.0
		if s.Err != nil {
			refused = 1
		}
		out <- prometheus.MustNewConstMetric(c.changes, prometheus.CounterValue, float64(s.Changes), s.File, s.Use)
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.GaugeValue, refused, s.File, s.Use)
		if !s.Expires.IsZero() {
			out <- prometheus.MustNewConstMetric(c.expires, prometheus.GaugeValue, float64(s.Expires.Unix()), s.File, s.Use)
		}
	}
}
