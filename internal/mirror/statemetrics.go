package mirror

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/mirror/states"
)

// stateMetrics show the states of mirrors, those that do not run at present included.
type stateMetrics struct {
	mirrors         *Set
	transitions     *prometheus.CounterVec
	state           *prometheus.Desc
	refusedForSlots *prometheus.Desc
}

// newStateMetrics can be described without mirrors.
func newStateMetrics(s *Set) *stateMetrics {
	c := &stateMetrics{
		mirrors: s, transitions: newTransitions(),
		state: prometheus.NewDesc("spillway_mirror_state",
			"1 for the state of a resource's mirror, 0 for the other states: starting, synced, resuming, "+
				"refused, falling_back or given_up. Requests are answered from memory in the states synced "+
				"and resuming.",
			[]string{"resource", "version", "state"}, nil),
		refusedForSlots: prometheus.NewDesc("spillway_mirror_limit_exceeded_total",
			"Requests that passed through because --max-resources are already mirrored on demand.", nil, nil),
	}
	if s != nil {
		c.transitions = s.transitions
	}
	return c
}

// newTransitions counts the transitions of all mirrors.
func newTransitions() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_mirror_transitions_total",
		Help: "Transitions of mirrors to another state, or to another cause of the same state, by the new state " +
			"and its cause.",
	}, []string{"state", "cause"})
}

func (c *stateMetrics) describe(out chan<- *prometheus.Desc) {
	out <- c.state
	c.transitions.Describe(out)
	out <- c.refusedForSlots
}

func (c *stateMetrics) collect(out chan<- prometheus.Metric) {
	for _, of := range c.mirrors.states() {
		state := of.State()
		for _, kind := range states.Kinds() {
			value := 0.0
			if kind == state.Kind() {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value,
				of.resource, of.version, string(kind))
		}
	}
	c.transitions.Collect(out)
	out <- prometheus.MustNewConstMetric(c.refusedForSlots, prometheus.CounterValue,
		float64(c.mirrors.refusedForSlots.Load()))
}
