package serve

import (
	"errors"

	"spillway/internal/cache"
	"spillway/internal/freshness"
	"spillway/internal/plan"
)

// The source of the answer to a LIST of the most recent state: the label of a metric.
const (
	recentFromMemory   = "memory"                 // after a proof
	recentFromUpstream = "upstream"               // passed through at once, which was expected to be sooner
	recentAfterTimeout = "upstream_after_timeout" // passed through because no proof came in time
)

// proveState is a state for a LIST that must not be older than the request, or an error if upstream
// answers sooner.
func (r *request) proveState() (*cache.Snapshot, error) {
	state, err := r.plan.Source.Fresh.TryProve(r.server.base, listSize(r.plan))
	answer := recentFromMemory
	switch {
	case errors.Is(err, freshness.ErrUpstreamFaster):
		answer = recentFromUpstream
	case err != nil:
		answer = recentAfterTimeout
	}
	r.server.metrics.recent.WithLabelValues(r.resource(), answer).Inc()
	return state, err
}

// sizedItemsLimit is how many objects are counted at most to tell how large a LIST is. For more of
// them a proof is worth any wait.
const sizedItemsLimit = 2000

// listSize is about how many objects the LIST has now.
func listSize(p plan.Plan) int {
	state := p.Source.Resource().Snapshot()
	if state == nil {
		return 0
	}
	limit := sizedItemsLimit
	if p.List.Limit > 0 {
		limit = int(min(p.List.Limit, sizedItemsLimit))
	}
	return state.CountSelected(p.Selector, p.List.Start, limit)
}
