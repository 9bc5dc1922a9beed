package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/clientconn"
	"spillway/internal/metric"
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
	lists       map[string]prometheus.Observer // by the source of the answer
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
	on := metric.At(r)
	m := &Metrics{
		requests: on.CounterVec("spillway_cached_requests_total",
			"Requests answered from memory, by the encoding of the answer.", "resource", "verb", "encoding"),
		refused: on.CounterVec("spillway_refused_requests_total",
			"Requests answered from memory with an error, by code. The error is worded as the API server's.",
			"resource", "code"),
		cut: on.CounterVec("spillway_evicted_lists_total",
			"LISTs from memory that ended because their client read too slowly, by reason. "+
				"slow_client_stalled: the client took nothing for --stall-timeout, or for 2 s while memory was "+
				"short. slow_client_memory_pressure: it took too little while memory was short. "+
				"slow_client_quota: it took too little while others waited for --max-list-bytes-in-flight.",
			"resource", "reason"),
		recent: on.CounterVec("spillway_consistent_lists_total",
			"LISTs without a resourceVersion, by the source of the answer: memory, upstream, or "+
				"upstream_after_timeout. The last is the API server, when freshness could not be proven in "+
				"time.", "resource", "source"),
		shared: on.CounterVec("spillway_shared_lists_total",
			"LISTs without a resourceVersion that shared one request upstream with others.", "resource"),
		notReady: on.CounterVec("spillway_not_ready_rejections_total",
			"Requests answered 429 because a resource's first state had not arrived.", "resource"),
		unproven: on.CounterVec("spillway_freshness_rejections_total",
			"Watches of the most recent state answered 429. Freshness could not be proven, and too many "+
				"such watches were passing through.", "resource"),
		stale: on.CounterVec("spillway_stale_responses_total",
			"Answers from the last known state while the API server was unreachable. Each has an Age "+
				"header.", "resource"),
		tooStale: on.CounterVec("spillway_max_staleness_exceeded_total",
			"Requests that passed through because the last known state was older than --max-staleness.", "resource"),
		unencodable: on.CounterVec("spillway_encoding_failures_total",
			"Answers that could not be made in an encoding. The encoding is not offered afterwards.", "resource", "encoding"),
		panics: on.Counter("spillway_panics_total", "Requests whose handler panicked."),
		http2: on.Gauge("spillway_http2_connections",
			"Client connections that speak HTTP/2. Each carries any number of requests and watches."),
		lists:   map[string]prometheus.Observer{},
		conns:   clientconn.NewConnMetrics(r),
		watches: watch.NewStreamMetrics(r),
	}
	durations := on.NewHistogramVec(prometheus.HistogramOpts{
		Name: "spillway_list_duration_seconds",
		Help: "Time from the arrival of a LIST of a mirrored resource until its answer began, by source. The " +
			"source is memory, upstream, or shared: one request upstream for several LISTs.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"source"})
	for _, source := range listSources {
		m.lists[source] = durations.WithLabelValues(source)
	}
	return m
}

// introduce makes the counters of a resource at its first request, with the value 0: a counter that
// appears with its first count shows no rate and no increase, and raises no alert.
func (m *Metrics) introduce(s *source.Source) {
	if !s.FirstUse() {
		return
	}
	resource := s.Resource().Info.String()
	for _, c := range []*prometheus.CounterVec{m.shared, m.notReady, m.unproven, m.stale, m.tooStale} {
		c.WithLabelValues(resource)
	}
	m.watches.Introduce(resource)
	for _, reason := range watch.EndReasons {
		if reason.EvictionMessage() != "" {
			m.cut.WithLabelValues(resource, string(reason))
		}
	}
	for _, answer := range []string{recentFromMemory, recentFromUpstream, recentAfterTimeout} {
		m.recent.WithLabelValues(resource, answer)
	}
}

func (m *Metrics) countAnswer(p plan.Plan, verb string) {
	m.requests.WithLabelValues(p.Source.Resource().Info.String(), verb, plan.EncodingName(p.Encoding)).Inc()
}
