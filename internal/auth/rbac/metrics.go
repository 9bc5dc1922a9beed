package rbac

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/metric"
)

// DecisionMetrics count local decisions, and what they rest on. Labels never name a user (design
// D16).
type DecisionMetrics struct {
	unwatched     *prometheus.GaugeVec
	changes       prometheus.Counter
	proofs        *prometheus.CounterVec
	enabled       *prometheus.GaugeVec
	spotChecks    *prometheus.CounterVec
	disagreements *prometheus.CounterVec
}

// The sorts of reviews that are decided here, as metrics name them.
const (
	reviewOfToken  = "token"
	reviewOfAccess = "access"
)

// What the API server says of a local decision, as metrics name it.
const (
	checkAgreed     = "agreed"
	checkDenied     = "denied"
	checkUnanswered = "error"
)

// What became of a proof, as metrics name it.
const (
	proofSucceeded = "proven"
	proofFailed    = "failed"
)

// NewMetrics makes DecisionMetrics and registers them; r may be nil. Counters whose labels are
// known begin at 0: a counter that appears with its first count shows no increase, and so raises no
// alert.
func NewMetrics(r prometheus.Registerer) *DecisionMetrics {
	on := metric.At(r)
	m := &DecisionMetrics{
		unwatched: on.GaugeVec("spillway_rbac_watch_denied",
			"1 for a resource that decides permissions and that Spillway may not watch.", "resource"),
		changes: on.Counter("spillway_rbac_changes_total",
			"Changes of RBAC objects after which running watches were checked at once."),
		proofs: on.CounterVec("spillway_rbac_freshness_checks_total",
			"Requests that prove that mirrored RBAC objects and keys are current, by result.", "resource", "result"),
		enabled: on.GaugeVec("spillway_local_decisions_enabled",
			"1 while reviews are decided locally, 0 once the API server has denied what was allowed "+
				"locally.", "review"),
		spotChecks: on.CounterVec("spillway_local_decision_checks_total",
			"Local decisions that were compared with a review by the API server, by result.", "review", "result"),
		disagreements: on.CounterVec("spillway_local_decision_disagreements_total",
			"Times that local decisions were disabled because the API server denied what was allowed locally.", "review"),
	}
	for _, review := range []string{reviewOfToken, reviewOfAccess} {
		for _, result := range []string{checkAgreed, checkDenied, checkUnanswered} {
			m.spotChecks.WithLabelValues(review, result)
		}
		m.disagreements.WithLabelValues(review)
	}
	return m
}
