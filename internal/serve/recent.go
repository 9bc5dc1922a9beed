package serve

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/cache"
	"spillway/internal/object"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
)

// How a LIST that asks for the most recent state was answered: the label of a metric.
const (
	recentProven = "memory"                 // once the cache was proven
	recentPassed = "upstream"               // passed through at once, which was expected to be sooner
	recentLate   = "upstream_after_timeout" // passed through after a proof had been waited for in vain
)

// recent is a state for a LIST that must not be older than the request, or an error if upstream
// answers sooner.
func (s *Server) recent(p plan.Plan) (*cache.Snapshot, error) {
	state, err := p.Source.Fresh.TryProve(s.base, listSize(p))
	answer := recentProven
	switch {
	case errors.Is(err, cache.ErrUpstreamFaster):
		answer = recentPassed
	case err != nil:
		answer = recentLate
	}
	s.metrics.recent.WithLabelValues(p.Source.Resource().Info.String(), answer).Inc()
	return state, err
}

// secrets are never shared, not even among users that may read all of them.
var secrets = schema.GroupResource{Resource: "secrets"}

// passRecent passes a LIST of the most recent state through, together with others that are the
// same. How long upstream takes for it tells what a proof is worth.
func (s *Server) passRecent(c call, r plan.Request, p plan.Plan, v requester) {
	info, fresh, n := p.Source.Resource().Info, p.Source.Fresh, listSize(p)
	alone := func(head func()) {
		s.passList(c, v, passthrough.AnswerHooks{Head: head, Took: func(took time.Duration) { fresh.Passed(n, took) }})
	}
	if info.GVR.GroupResource() == secrets {
		alone(nil)
		return
	}
	if s.coalescer.Pass(c, passthrough.LaneOf(r, c.RequestHeader("Accept-Encoding")), r.UserAgent, alone) {
		s.metrics.shared.WithLabelValues(info.String()).Inc()
		s.listed(v, listedShared)
	}
}

// sizedItemsLimit is how many objects are counted at most to tell how large a LIST is. Beyond it a
// proof is worth any wait.
const sizedItemsLimit = 2000

// listSize is about how many objects the LIST has now. Counting takes no longer than it tells
// something.
func listSize(p plan.Plan) int {
	state := p.Source.Resource().Snapshot()
	if state == nil {
		return 0
	}
	most := sizedItemsLimit
	if p.List.Limit > 0 {
		most = int(min(p.List.Limit, sizedItemsLimit))
	}
	if p.Selector.ScopeOnly() && p.Selector.Namespace == "" && p.Selector.Name == "" {
		return min(state.Len(), most)
	}
	n, looked := 0, 0
	scope := object.NewSelector(p.Selector.Namespace, p.Selector.Name, nil, nil)
	if state.Finds(p.Selector) {
		scope = p.Selector
	}
	state.Scan(scope, p.List.Start, func(o *object.Object) bool {
		if looked++; p.Selector.Matches(o) {
			n++
		}
		return n < most && looked < 5*sizedItemsLimit
	})
	return n
}
