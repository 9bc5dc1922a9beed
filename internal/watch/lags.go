package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/object"
	"spillway/internal/source"
)

// lagCollector shows the number of watches and their lag, by resource and type of selector. It is
// computed at a scrape, as for the status page, so that a delivery updates no metric.
type lagCollector struct {
	streams, behind *prometheus.Desc
	groups          func() map[lagGroup]lag // nil: there is no manager
}

// lagGroup is the labels of a series. One resource can have several Sources, of other versions or
// about to end; they are added up, because a registry rejects two series with the same labels.
type lagGroup struct{ resource, selectorType string }

type lag struct {
	streams int
	behind  time.Duration
}

func newLagCollector() *lagCollector {
	labels := []string{"resource", "selector_type"}
	return &lagCollector{
		streams: prometheus.NewDesc("spillway_watches_by_selector_type",
			"Watches served from memory, by the most specific part of their selection: name, field, label, namespace, or "+
				"all.", labels, nil),
		behind: prometheus.NewDesc("spillway_watch_lag_seconds",
			"Age of the oldest event of a watch that is not sent, or that the client has not read. The watch "+
				"that is farthest behind counts.",
			labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (l *lagCollector) Describe(out chan<- *prometheus.Desc) { out <- l.streams; out <- l.behind }

// Collect implements prometheus.Collector.
func (l *lagCollector) Collect(out chan<- prometheus.Metric) {
	if l.groups == nil {
		return
	}
	for g, lag := range l.groups() {
		out <- prometheus.MustNewConstMetric(l.streams, prometheus.GaugeValue, float64(lag.streams), g.resource,
			g.selectorType)
		out <- prometheus.MustNewConstMetric(l.behind, prometheus.GaugeValue, lag.behind.Seconds(), g.resource,
			g.selectorType)
	}
}

// lagGroups is the lag of all watches.
func (m *Manager) lagGroups() map[lagGroup]lag { return groupLags(m.Streams(), time.Now()) }

func groupLags(streams []*Stream, now time.Time) map[lagGroup]lag {
	groups, names := map[lagGroup]lag{}, map[*source.Source]string{}
	for _, st := range streams {
		c, open := st.counters()
		if !open {
			continue
		}
		source := st.source
		if names[source] == "" {
			names[source] = source.Resource().Info.String()
		}
		group := lagGroup{names[source], selectorType(st.selector())}
		sum := groups[group]
		groups[group] = lag{streams: sum.streams + 1, behind: max(sum.behind, st.lagTime(c, now))}
	}
	return groups
}

// lagTime is the lag of a stream, that of its client counted in.
func (s *Stream) lagTime(c streamCounters, now time.Time) (behind time.Duration) {
	if c.live && c.position.Pending {
		behind = s.entryAge(c.position.First, now)
	}
	if !c.blockedSince.IsZero() {
		behind = max(behind, now.Sub(c.blockedSince))
	}
	return behind
}

// entryAge is how old the event at a log position is.
func (s *Stream) entryAge(position uint64, now time.Time) time.Duration {
	log := s.source.Resource().Log()
	if e, ok := log.EntryAt(position); ok {
		return now.Sub(e.At)
	}
	if _, since := log.Span(); !since.IsZero() { // the log has moved past it
		return now.Sub(since)
	}
	return 0
}

// selectorType is the most specific part of a selector.
func selectorType(sel object.Selector) string {
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
