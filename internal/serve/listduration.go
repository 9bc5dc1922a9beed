package serve

import (
	"sync"
	"time"

	"spillway/internal/passthrough"

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

// listed notes that the head of the answer to a LIST is there, and its source. A traced one is the
// exemplar for others that took as long.
func (s *Server) listed(v requester, by string) {
	took := time.Since(v.came).Seconds()
	if id := v.trace.id(); id != "" {
		s.metrics.lists[by].(prometheus.ExemplarObserver).ObserveWithExemplar(took, prometheus.Labels{"trace_id": id})
		return
	}
	s.metrics.lists[by].Observe(took)
}

// passList passes a LIST through that would have been answered here.
func (s *Server) passList(c call, v requester, h passthrough.AnswerHooks) {
	begun := sync.OnceFunc(func() { s.listed(v, listedUpstream) })
	head := h.Head
	h.Head = func() {
		begun()
		if head != nil {
			head()
		}
	}
	s.pass(c, v, h)
	begun() // a request that passes through directly returns instead
}
