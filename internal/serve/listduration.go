package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label source of spillway_list_duration_seconds.
const (
	listFromMemory       = "memory"   // from a state that is held here
	listFromUpstream     = "upstream" // passed through, immediately or after memory could not answer
	listFromSharedAnswer = "shared"   // by a request upstream that was made for several
)

// listSources are all of them, so that each is a series from the start.
var listSources = []string{listFromMemory, listFromUpstream, listFromSharedAnswer}

// observeList observes the time until the answer to a mirrored LIST was ready to be sent, or until
// upstream's began or failed. It is called once for a LIST. A traced one is the exemplar of those
// that took as long.
func (r *request) observeList(source string) {
	durations, took := r.server.metrics.lists[source], time.Since(r.arrivedAt).Seconds()
	if id := r.trace.id(); id != "" {
		durations.(prometheus.ExemplarObserver).ObserveWithExemplar(took, prometheus.Labels{"trace_id": id})
		return
	}
	durations.Observe(took)
}
