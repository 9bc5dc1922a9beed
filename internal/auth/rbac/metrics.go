package rbac

import "github.com/prometheus/client_golang/prometheus"

// DecisionMetrics count local decisions, and what they rest on. Labels never name a user (design
// D16).
type DecisionMetrics struct {
	unwatched     *prometheus.GaugeVec
	changes       prometheus.Counter
	proofs        *prometheus.CounterVec
	deciding      *prometheus.GaugeVec
	spotChecks    *prometheus.CounterVec
	disagreements *prometheus.CounterVec
}

// The sorts of reviews that are decided here, as metrics name them.
const (
	reviewOfToken  = "token"
	reviewOfAccess = "access"
)

// NewMetrics makes the metrics and registers them; r may be nil. Counters whose labels are known
// begin at 0: a counter that appears with its first count shows no increase, and so raises no
// alert.
func NewMetrics(r prometheus.Registerer) *DecisionMetrics {
	m := &DecisionMetrics{
		unwatched: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_rbac_watch_denied",
			Help: "1 for a resource that decides permissions and that the proxy may not watch.",
		}, []string{"resource"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_rbac_changes_total",
			Help: "Changes of RBAC objects after which running watches were checked at once.",
		}),
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_rbac_freshness_checks_total",
			Help: "Requests that prove that mirrored RBAC objects and keys are current, by result.",
		}, []string{"resource", "result"}),
		deciding: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_local_decisions_enabled",
			Help: "1 while reviews are decided locally, 0 once the apiserver has denied what was allowed locally.",
		}, []string{"review"}),
		spotChecks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_decision_checks_total",
			Help: "Local decisions that were compared with a review by the apiserver, by result.",
		}, []string{"review", "result"}),
		disagreements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_decision_disagreements_total",
			Help: "Times that local decisions were disabled since the apiserver denied what was allowed locally.",
		}, []string{"review"}),
	}
	for _, review := range []string{reviewOfToken, reviewOfAccess} {
		for _, result := range []string{checkAgreed, checkDenied, checkUnasked} {
			m.spotChecks.WithLabelValues(review, result)
		}
		m.disagreements.WithLabelValues(review)
	}
	if r != nil {
		r.MustRegister(m.unwatched, m.changes, m.proofs, m.deciding, m.spotChecks, m.disagreements)
	}
	return m
}
