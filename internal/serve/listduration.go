package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The source of the answer to a LIST: the label of a metric.
const (
	listFromMemory   = "memory"   // from a state that is held here
	listFromUpstream = "upstream" // passed through, at once or in the end
	listFromShared   = "shared"   // by a request upstream that was made for several
)

// listSources are all of them, so that each is a metric from the start.
var listSources = []string{listFromMemory, listFromUpstream, listFromShared}

// observeList notes once that the head of the answer to a LIST is there, and its source. A traced
// LIST is the exemplar of those that took as long.
func (r *request) observeList(by string) {
	r.observeListOnce.Do(func() {
		durations, took := r.server.metrics.lists[by], time.Since(r.arrivedAt).Seconds()
		if id := r.trace.id(); id != "" {
			durations.(prometheus.ExemplarObserver).ObserveWithExemplar(took, prometheus.Labels{"trace_id": id})
			return
		}
		durations.Observe(took)
	})
}
