package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What answered a LIST: the label of a metric.
const (
	listedMemory   = "memory"   // from a state that is held here
	listedUpstream = "upstream" // passed through, at once or in the end
	listedShared   = "shared"   // by a request upstream that was made for several
)

// listedBy are all of them, so that each is a metric from the start.
var listedBy = []string{listedMemory, listedUpstream, listedShared}

// listed notes once that the head of the answer to a LIST is there, and its source. A traced one is
// the exemplar for others that took as long.
func (r *request) listed(by string) {
	r.onceListed.Do(func() {
		took := time.Since(r.came).Seconds()
		if id := r.trace.id(); id != "" {
			r.server.metrics.lists[by].(prometheus.ExemplarObserver).ObserveWithExemplar(took, prometheus.Labels{"trace_id": id})
			return
		}
		r.server.metrics.lists[by].Observe(took)
	})
}
