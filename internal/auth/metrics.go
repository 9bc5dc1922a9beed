package auth

import "github.com/prometheus/client_golang/prometheus"

// Metrics count requests by how they were authenticated and authorized, and the reviews
// for that. Labels never name a user (design D16).
type Metrics struct {
	outcomes *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	sources  *prometheus.CounterVec
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
			Help: "Answers about tokens and access for new requests, by where they came from: what is watched, " +
				"memory, a review that others waited for as well, or a review of their own.",
		}, []string{"review", "source"}),
	}
	m.introduce()
	for _, o := range Outcomes {
		m.outcomes.WithLabelValues(string(o))
	}
	if r != nil {
		r.MustRegister(m.outcomes, m.verdicts, m.sources)
	}
	return m
}

// introduce makes the counters whose labels are known, so that what has never happened is 0 and not
// absent: a counter that appears with its first count shows no increase, and so raises no alert.
func (m *Metrics) introduce() {
	for _, v := range Verdicts {
		m.verdicts.WithLabelValues(string(v))
	}
	for _, review := range []string{reviewOfToken, reviewOfAccess} {
		for _, s := range []source{fromLocal, fromMemory, fromFlight, fromReview} {
			m.sources.WithLabelValues(review, string(s))
		}
	}
}

// answers counts the answers to one sort of review.
func (m *Metrics) answers(review string) func(source) {
	return func(s source) { m.sources.WithLabelValues(review, string(s)).Inc() }
}
