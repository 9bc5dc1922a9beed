package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/clientconn"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// Metrics count what the server does. Labels never name a namespace, an object, a user or a
// selector (design D16).
type Metrics struct {
	requests    *prometheus.CounterVec
	refused     *prometheus.CounterVec
	cut         *prometheus.CounterVec
	lists       map[string]prometheus.Observer // by who answered
	recent      *prometheus.CounterVec
	shared      *prometheus.CounterVec
	notReady    *prometheus.CounterVec
	unproven    *prometheus.CounterVec
	stale       *prometheus.CounterVec
	tooStale    *prometheus.CounterVec
	unencodable *prometheus.CounterVec
	panics      prometheus.Counter
	http2       prometheus.Gauge
	conns       *clientconn.ConnMetrics
	watches     *watch.StreamMetrics
}

// NewMetrics makes the server's metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_cached_requests_total", Help: "Requests answered from memory, by the encoding of the answer.",
		}, []string{"resource", "verb", "encoding"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_refused_requests_total",
			Help: "Requests answered from memory with an error, in the words of the apiserver, by code.",
		}, []string{"resource", "code"}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_evicted_lists_total",
			Help: "LISTs from memory that ended since their client read too slowly: nothing for --stall-timeout " +
				"(slow_client_stalled), or too little while memory was short (slow_client_memory_pressure) or while others " +
				"waited for --max-list-bytes-in-flight (slow_client_quota).",
		}, []string{"resource", "reason"}),
		recent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_consistent_lists_total",
			Help: "LISTs without a resourceVersion, by the source of the answer: memory, upstream, or upstream after " +
				"freshness could not be proven in time (upstream_after_timeout).",
		}, []string{"resource", "source"}),
		shared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shared_lists_total",
			Help: "LISTs without a resourceVersion that shared one request upstream with others.",
		}, []string{"resource"}),
		notReady: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_not_ready_rejections_total",
			Help: "Requests answered 429 because a resource's first state had not arrived.",
		}, []string{"resource"}),
		unproven: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_freshness_rejections_total",
			Help: "Watches of the most recent state answered 429: freshness could not be proven, and the limit of such " +
				"watches that pass through was reached.",
		}, []string{"resource"}),
		stale: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_stale_responses_total",
			Help: "Answers from the last known state while upstream was away; each has an Age header.",
		}, []string{"resource"}),
		tooStale: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_max_staleness_exceeded_total",
			Help: "Requests that passed through since the last known state was older than --max-staleness.",
		}, []string{"resource"}),
		unencodable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_encoding_failures_total",
			Help: "Answers that could not be made in an encoding, which is not offered since.",
		}, []string{"resource", "encoding"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_panics_total", Help: "Requests whose handler panicked.",
		}),
	}
	m.http2 = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_http2_connections",
		Help: "Client connections that speak HTTP/2; each carries any number of requests and watches.",
	})
	m.conns, m.watches = clientconn.NewConnMetrics(), watch.NewStreamMetrics()
	durations := m.makeLists()
	if r != nil {
		r.MustRegister(m.conns.Collectors()...)
		r.MustRegister(m.watches.Collectors()...)
		r.MustRegister(durations, m.requests, m.refused, m.cut, m.recent, m.shared, m.notReady, m.unproven, m.unencodable,
			m.panics, m.http2, m.stale, m.tooStale)
	}
	return m
}

// makeLists makes the metric of how long LISTs take.
func (m *Metrics) makeLists() prometheus.Collector {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "spillway_list_duration_seconds",
		Help: "How long LISTs of mirrored resources took, from their arrival until the answer began, by its source: " +
			"memory, upstream, or one request upstream for several (shared).",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"source"})
	m.lists = map[string]prometheus.Observer{}
	for _, by := range listedBy {
		m.lists[by] = durations.WithLabelValues(by)
	}
	return durations
}

// introduce makes the counters of a resource that somebody asks for, so that what has never
// happened is 0 and not absent: of a counter that appears with its first count no rate and no
// increase can be told, and no alert.
func (m *Metrics) introduce(s *source.Source) {
	if !s.FirstUse() {
		return
	}
	resource := s.Resource().Info.String()
	for _, c := range []*prometheus.CounterVec{m.shared, m.notReady, m.unproven, m.stale, m.tooStale} {
		c.WithLabelValues(resource)
	}
	m.watches.Introduce(resource)
	for reason := range watch.EvictionMessages {
		m.cut.WithLabelValues(resource, string(reason))
	}
	for _, answer := range []string{recentProven, recentPassed, recentLate} {
		m.recent.WithLabelValues(resource, answer)
	}
}

func (m *Metrics) answered(p plan.Plan, verb string) {
	m.requests.WithLabelValues(p.Source.Resource().Info.String(), verb, plan.EncodingName(p.Encoding)).Inc()
}
