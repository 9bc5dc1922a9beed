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
	// downText and staleText are the Warning of answers from a state that is not kept current:
	// since the apiserver does not answer, or for another reason, with the resource in it. They do
	// not change, since clients show each text once; how old the state is, is in the header Age.
	downText  = `299 - "the apiserver is out of the proxy's reach: this is the last state known, see the header Age"`
	staleText = `299 - "the proxy's copy of %s is not kept current: this is the last state known, see the header Age"`
	// warningInterval is how often one flow is warned. client-go logs every warning that it gets, and
	// an informer lists in each attempt of its own, so that an outage would fill logs with one line.
	// It is counted by flow, not by connection: over HTTP/1.1 a client may well open a connection for
	// each request.
	warningInterval = time.Minute
	// warnedUsersLimit is how many flows are remembered. A flow beyond them gets no warning, but the
	// header Age.
	warnedUsersLimit = 10_000
)

// staleness is what an answer says of the age of its state (design D15). The zero value says
// nothing: the state is kept current.
type staleness struct {
	age         time.Duration
	unreachable bool // the apiserver does not answer
	warn        bool
}

// sourceHeaders sets Age, and Warning from what the source has to say of the resource and of the
// age of its state.
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

// checkAge finds out how old the state behind the plan is. It reports false if that is too old to
// be shown: upstream, or the failure to reach it, answers then.
func (r *request) checkAge() bool {
	if r.plan.Source.Age == nil || !r.plan.ShowsState() {
		return true
	}
	age, away := r.plan.Source.Age()
	if age <= 0 {
		return true
	}
	m := r.server.metrics
	if age > r.server.opts.MaxStaleness {
		m.tooStale.WithLabelValues(r.resource()).Inc()
		return false
	}
	m.stale.WithLabelValues(r.resource()).Inc()
	r.staleness = staleness{age, away, r.server.warnings.shouldWarn(r.flow, time.Now())}
	return true
}

// lastWarnings remembers which flows were warned lately.
type lastWarnings struct {
	mu   sync.Mutex
	last map[flowcontrol.Flow]time.Time
}

// shouldWarn reports whether a flow is to be warned now, and takes it that it is.
func (w *lastWarnings) shouldWarn(flow flowcontrol.Flow, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[flow]; ok && now.Sub(last) < warningInterval {
		return false
	}
	if len(w.last) >= warnedUsersLimit {
		for f, last := range w.last {
			if now.Sub(last) >= warningInterval {
				delete(w.last, f)
			}
		}
		if len(w.last) >= warnedUsersLimit {
			return false
		}
	}
	if w.last == nil {
		w.last = map[flowcontrol.Flow]time.Time{}
	}
	w.last[flow] = now
	return true
}
