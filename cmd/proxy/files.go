package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/rotation"
	"spillway/internal/status"
)

// files are those that the proxy follows while it runs, whatever follows them: upstream's
// transports, listeners, and what verifies clients' certificates.
type files struct {
	mu   sync.Mutex
	from []func() []rotation.State
}

func (f *files) add(states func() []rotation.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = append(f.from, states)
}

// states are those of all files.
func (f *files) states() []rotation.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []rotation.State
	for _, states := range f.from {
		all = append(all, states()...)
	}
	return all
}

// ready says which file is not in use as it is. That is no reason to send requests elsewhere: what
// was read before is.
func (f *files) ready() (detail string, err error) {
	for _, s := range f.states() {
		if s.Err != nil {
			return "what was read at " + s.Since.UTC().Format("2006-01-02 15:04:05") + " is in use still: " + s.Err.Error(), nil
		}
	}
	return "", nil
}

// status are the files on the status page.
func (f *files) status() []*status.File {
	all := []*status.File{}
	for _, s := range f.states() {
		one := &status.File{File: s.File, Use: s.Use, Since: s.Since, Changes: s.Changes}
		if !s.Expires.IsZero() {
			one.Expires = &s.Expires
		}
		if s.Err != nil {
			one.Error = status.OneLine(s.Err.Error())
		}
		all = append(all, one)
	}
	return all
}

// fileMetrics shows the files at the moment of a scrape.
type fileMetrics struct {
	files                     *files
	changes, refused, expires *prometheus.Desc
}

func newFileMetrics(f *files) *fileMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_file_"+name, help, []string{"file", "use"}, nil)
	}
	return &fileMetrics{
		files:   f,
		changes: desc("changes_total", "Times that something else was read from a file and taken since the start."),
		refused: desc("refused", "1 while what is in a file cannot be used, and what was read from it before is in use."),
		expires: desc("expiry_timestamp_seconds", "When the certificate in use ends that was read from a file, in Unix seconds; of authorities, the last of them."),
	}
}

// Describe implements prometheus.Collector.
func (m *fileMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.changes
	out <- m.refused
	out <- m.expires
}

// Collect implements prometheus.Collector.
func (m *fileMetrics) Collect(out chan<- prometheus.Metric) {
	type series struct{ file, use string }
	seen := map[series]bool{} // two identities may have a file in common
	for _, s := range m.files.states() {
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
