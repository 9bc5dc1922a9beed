package serve

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/flowcontrol"
)

const (
	// downText and staleText are the Warning of answers from a state that is not kept current: because
	// the API server does not answer, or, with the resource in it, for another reason. They do not
	// tell the age of the state, because clients show each text once: the header Age does.
	downText  = `299 - "the API server is out of the proxy's reach: this is the last state known, see the header Age"`
	staleText = `299 - "the proxy's copy of %s is not kept current: this is the last state known, see the header Age"`
	// warningInterval is how often one flow is warned. client-go logs every warning that it gets, and
	// an informer lists in each attempt, so an outage would fill logs with one line. It holds for a
	// flow, because over HTTP/1.1 a client may open a connection for each request.
	warningInterval = time.Minute
	// warnedFlowsLimit is how many flows are remembered. Any other gets no warning, only the header
	// Age.
	warnedFlowsLimit = 10_000
)

// staleness is what an answer says of the age of its state (design D15). The zero value says
// nothing: the state is kept current.
type staleness struct {
	age         time.Duration
	unreachable bool // the API server does not answer
	warn        bool
}

// sourceHeaders sets Age, and Warning by what the source says of the resource and of the age of its
// state.
func (r *request) sourceHeaders(set func(key, value string)) {
	var warnings []string
	if text := r.plan.Source.WarningText(); text != "" {
		warnings = append(warnings, text)
	}
	if r.staleness.age > 0 {
		set("Age", strconv.FormatInt(int64(r.staleness.age/time.Second), 10))
	}
	switch {
	case r.staleness.warn && r.staleness.unreachable:
		warnings = append(warnings, downText)
	case r.staleness.warn:
		warnings = append(warnings, fmt.Sprintf(staleText, r.resource()))
	}
	if len(warnings) > 0 {
		set("Warning", strings.Join(warnings, ", "))
	}
}

// checkAge finds out how old the state behind the plan is. It reports false if the state is too old
// to be shown: the request passes through.
func (r *request) checkAge() bool {
	if r.plan.Source.Age == nil || !r.plan.ShowsState() {
		return true
	}
	age, unreachable := r.plan.Source.Age()
	if age <= 0 {
		return true
	}
	m := r.server.metrics
	if age > r.server.opts.MaxStaleness {
		m.tooStale.WithLabelValues(r.resource()).Inc()
		return false
	}
	m.stale.WithLabelValues(r.resource()).Inc()
	r.staleness = staleness{age, unreachable, r.server.warnings.shouldWarn(r.flow, time.Now())}
	return true
}

// lastWarnings remembers which flows were warned lately.
type lastWarnings struct {
	mu   sync.Mutex
	last map[flowcontrol.Flow]time.Time
}

// shouldWarn reports whether a flow is to be warned now. The caller then warns it.
func (w *lastWarnings) shouldWarn(flow flowcontrol.Flow, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[flow]; ok && now.Sub(last) < warningInterval {
		return false
	}
	if len(w.last) >= warnedFlowsLimit {
		for f, last := range w.last {
			if now.Sub(last) >= warningInterval {
				delete(w.last, f)
			}
		}
		if len(w.last) >= warnedFlowsLimit {
			return false
		}
	}
	if w.last == nil {
		w.last = map[flowcontrol.Flow]time.Time{}
	}
	w.last[flow] = now
	return true
}
