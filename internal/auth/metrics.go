package auth

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// Metrics count requests by how they were authenticated and authorized, and the reviews for that.
// Labels never name a user (design D16).
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

// NewMetrics makes the metrics and registers them; r may be nil. Counters whose labels are known
// begin at 0: a counter that appears with its first count shows no increase, and so raises no
// alert.
func NewMetrics(r prometheus.Registerer) *Metrics {
	on := metric.At(r)
	m := &Metrics{
		outcomes: on.CounterVec("spillway_authentication_attempts_total",
			"Requests by the result of their authentication.", "result"),
		verdicts: on.CounterVec("spillway_authorization_attempts_total",
			"Requests by the result of their authorization.", "result"),
		sources: on.CounterVec("spillway_reviews_total",
			"TokenReviews (token) and SubjectAccessReviews (access) that new requests and running watches needed, by the "+
				"source of the answer. The source is local (a local decision), memory, upstream, or shared: one request "+
				"upstream for several reviews.",
			"review", "source"),
	}
	for _, o := range Outcomes {
		m.outcomes.WithLabelValues(string(o))
	}
	for _, v := range Verdicts {
		m.verdicts.WithLabelValues(string(v))
	}
	for _, review := range []string{reviewOfToken, reviewOfAccess} {
		for _, s := range []source{fromLocal, fromMemory, fromFlight, fromReview} {
			m.sources.WithLabelValues(review, string(s))
		}
	}
	return m
}

// countAnswers counts the answers to one sort of review.
func (m *Metrics) countAnswers(review string) func(source) {
	return func(s source) { m.sources.WithLabelValues(review, string(s)).Inc() }
}
