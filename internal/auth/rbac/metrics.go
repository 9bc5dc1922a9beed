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
			Name: "spillway_rights_unwatched", Help: "1 for what decides about permissions and upstream does not let us watch.",
		}, []string{"resource"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_rights_changes_total",
			Help: "Times that watches were checked at once because of a change of rights.",
		}),
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_rights_proofs_total",
			Help: "Questions to upstream whether what is decided by is what it holds, by what came of them.",
		}, []string{"what", "result"}),
		deciding: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_local_decisions",
			Help: "1 while reviews are answered by what is watched where that is proven, 0 when upstream has " +
				"denied what was allowed so.",
		}, []string{"review"}),
		spotChecks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_decision_checks_total",
			Help: "Local decisions that upstream was asked about all the same, by what it said.",
		}, []string{"review", "result"}),
		disagreements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_decision_disagreements_total",
			Help: "Times that local decisions were given up for good because upstream denies what they allow.",
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
