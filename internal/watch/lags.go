package watch

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/object"
	"spillway/internal/source"
)

// lags shows how many watches there are and how far they are behind, by resource and by what they
// select, at the moment of a scrape. Who delivers them is asked, as for the status page, so that a
// delivery counts nothing.
type lags struct {
	streams, behind *prometheus.Desc
	groups          func() map[lagGroup]lag // nil: nobody is watching
}

// lagGroup is watches of which there are a few sorts, however many selectors, by its labels: of one
// resource there may be several Sources, in other versions or on their way out, and a registry that
// is shown one set of labels twice shows nothing at all.
type lagGroup struct{ resource, selects string }

type lag struct {
	streams int
	behind  time.Duration
}

// lagWait is how long a scrape waits for those who deliver.
const lagWait = 2 * time.Second

func newLags() *lags {
	labels := []string{"resource", "selects"}
	return &lags{
		streams: prometheus.NewDesc("spillway_watch_group_streams",
			"Watches that are being served from memory, by the narrowest thing that they select by: name, field, label, "+
				"namespace, or all.", labels, nil),
		behind: prometheus.NewDesc("spillway_watch_lag_seconds",
			"How old, in seconds, the oldest event is that a watch has yet to be sent or its client to take, of the watch "+
				"that is farthest behind. Labels as of spillway_watch_group_streams.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lags) Describe(out chan<- *prometheus.Desc) { out <- l.streams; out <- l.behind }

// Collect implements prometheus.Collector.
func (l *lags) Collect(out chan<- prometheus.Metric) {
	if l.groups == nil {
		return
	}
	for g, lag := range l.groups() {
		out <- prometheus.MustNewConstMetric(l.streams, prometheus.GaugeValue, float64(lag.streams), g.resource, g.selects)
		out <- prometheus.MustNewConstMetric(l.behind, prometheus.GaugeValue, lag.behind.Seconds(), g.resource, g.selects)
	}
}

// lags is how far watches are behind; nothing if those who deliver them do not say in time.
func (m *Manager) lags() map[lagGroup]lag {
	m.counts.Lock()
	defer m.counts.Unlock()
	ctx, cancel := context.WithTimeout(m.base, lagWait)
	defer cancel()
	m.mu.Lock()
	streams := make([]*Stream, 0, len(m.mu.streams))
	for st := range m.mu.streams {
		streams = append(streams, st)
	}
	m.mu.Unlock()
	known, err := m.figures(ctx, streams)
	if err != nil {
		return nil
	}
	return grouped(streams, known, time.Now())
}

func grouped(streams []*Stream, known []figures, now time.Time) map[lagGroup]lag {
	groups, names := map[lagGroup]lag{}, map[*source.Source]string{}
	for i, st := range streams {
		if known[i].over {
			continue
		}
		source := st.plan.Source
		if names[source] == "" {
			names[source] = source.Resource().Info.String()
		}
		at := lagGroup{names[source], selects(st.plan.Selector)}
		one := groups[at]
		groups[at] = lag{streams: one.streams + 1, behind: max(one.behind, st.behind(known[i], now))}
	}
	return groups
}

// behind is the lag of a stream, that of its client counted in.
func (s *Stream) behind(f figures, now time.Time) (behind time.Duration) {
	if f.live && f.standing.Pending {
		behind = s.oldest(f.standing.First, now)
	}
	if !f.waited.IsZero() {
		behind = max(behind, now.Sub(f.waited))
	}
	return behind
}

// oldest is how old the event at a log position is.
func (s *Stream) oldest(position uint64, now time.Time) time.Duration {
	log := s.plan.Source.Resource().Log()
	if e, ok := log.At(position); ok {
		return now.Sub(e.At)
	}
	if _, since := log.Span(); !since.IsZero() { // the log has moved past it
		return now.Sub(since)
	}
	return 0
}

// selects is the narrowest thing that a selector names a value of.
func selects(sel object.Selector) string {
	name, field, label, namespace := sel.Name != "", false, false, sel.Namespace != ""
	for _, term := range sel.Terms() {
		switch {
		case term.Label:
			label = true
		case term.Name == object.FieldName:
			name = true
		case term.Name == object.FieldNamespace:
			namespace = true
		default:
			field = true
		}
	}
	switch {
	case name:
		return "name"
	case field:
		return "field"
	case label:
		return "label"
	case namespace:
		return "namespace"
	}
	return "all"
}
