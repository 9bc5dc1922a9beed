package auth

import "github.com/prometheus/client_golang/prometheus"

// Metrics count who was let in, what upstream was asked for that, and which watches were ended. Labels never name a user (design D16).
type Metrics struct {
	outcomes *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	sources  *prometheus.CounterVec
	checks   *prometheus.CounterVec
	watching *prometheus.GaugeVec
	held     prometheus.Gauge
	ends     *prometheus.CounterVec
	age      prometheus.Histogram

	unwatched     *prometheus.GaugeVec
	changes       prometheus.Counter
	proofs        *prometheus.CounterVec
	deciding      *prometheus.GaugeVec
	spotChecks    *prometheus.CounterVec
	disagreements *prometheus.CounterVec
}

// The sorts of reviews, as metrics name them.
const (
	reviewOfToken  = "token"
	reviewOfAccess = "access"
)

// NewMetrics makes the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_authentications_total", Help: "Requests by the outcome of their authentication.",
		}, []string{"outcome"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_authorizations_total", Help: "Requests by whether they may have what they ask for.",
		}, []string{"verdict"}),
		sources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_review_answers_total",
			Help: "Answers about tokens and access for new requests, by where they came from: what is watched, memory, a review that others waited for as well, or a review of their own.",
		}, []string{"review", "source"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_reauthorizations_total", Help: "Checks of what watches run by, credentials and permissions, by what came of them.",
		}, []string{"check", "result"}),
		watching: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_reauthorization_checks", Help: "Distinct credentials and permissions that watches run by.",
		}, []string{"check"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_held_watches", Help: "Watches that are sent nothing because upstream could not be asked in time whether they still may be.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_reauthorization_ends_total", Help: "Watches that were ended because they may not go on, by the reason.",
		}, []string{"reason"}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_reauthorization_age_seconds", Help: "How old what was known of a credential or a permission was when it was known again.",
			Buckets: []float64{1, 5, 10, 15, 20, 25, 26, 27, 28, 29, 30, 60},
		}),
	}
	m.makeRights()
	m.introduce()
	for _, o := range Outcomes {
		m.outcomes.WithLabelValues(string(o))
	}
	for _, e := range Ends {
		m.ends.WithLabelValues(string(e))
	}
	if r != nil {
		r.MustRegister(m.outcomes, m.verdicts, m.sources, m.checks, m.watching, m.held, m.ends, m.age,
			m.unwatched, m.changes, m.proofs, m.deciding, m.spotChecks, m.disagreements)
	}
	return m
}

// makeRights makes the metrics of Rights.
func (m *Metrics) makeRights() {
	m.unwatched = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_rights_unwatched", Help: "1 for what decides about permissions and upstream does not let us watch.",
	}, []string{"resource"})
	m.changes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_rights_changes_total", Help: "Times that watches were checked at once because of a change of rights.",
	})
	m.proofs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_rights_proofs_total", Help: "Questions to upstream whether what is decided by is what it holds, by what came of them.",
	}, []string{"what", "result"})
	m.deciding = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_local_decisions", Help: "1 while reviews are answered by what is watched where that is proven, 0 when upstream has denied what was allowed so.",
	}, []string{"review"})
	m.spotChecks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_local_decision_checks_total", Help: "Local decisions that upstream was asked about all the same, by what it said.",
	}, []string{"review", "result"})
	m.disagreements = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_local_decision_disagreements_total", Help: "Times that local decisions were given up for good because upstream denies what they allow.",
	}, []string{"review"})
}

// introduce makes the counters whose labels are known, so that what has never happened is 0 and not absent: of a counter that appears with
// its first count no increase can be told, and so no alert.
func (m *Metrics) introduce() {
	for _, v := range verdicts {
		m.verdicts.WithLabelValues(string(v))
		for _, k := range []kind{ofCredential, ofPermission} {
			m.checks.WithLabelValues(string(k), string(v))
		}
	}
	for _, review := range []string{reviewOfToken, reviewOfAccess} {
		for _, s := range []source{fromLocal, fromMemory, fromFlight, fromReview} {
			m.sources.WithLabelValues(review, string(s))
		}
		for _, result := range []string{checkAgreed, checkDenied, checkUnasked} {
			m.spotChecks.WithLabelValues(review, result)
		}
		m.disagreements.WithLabelValues(review)
	}
}

// answers counts the answers to one sort of review.
func (m *Metrics) answers(review string) func(source) {
	return func(s source) { m.sources.WithLabelValues(review, string(s)).Inc() }
}
