package serve

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/flowcontrol"
	"spillway/internal/plan"
)

const (
	// awayText and staleText are the Warning of answers from a state that is not kept current:
	// since the apiserver does not answer, or for another reason, with the resource in it. They do
	// not change, since clients show each text once; how old the state is, is in the header Age.
	awayText  = `299 - "the apiserver is out of the proxy's reach: this is the last state known, see the header Age"`
	staleText = `299 - "the proxy's copy of %s is not kept current: this is the last state known, see the header Age"`
	// warnEvery is how often one flow is warned. client-go logs every warning that it gets, and an
	// informer lists in each attempt of its own, so that an outage would fill logs with one line. It
	// is counted by flow, not by connection: over HTTP/1.1 a client may well open a connection for
	// each request.
	warnEvery = time.Minute
	// warnedMost is how many flows are remembered. A flow beyond them gets no warning, but the header
	// Age.
	warnedMost = 10_000
)

// staleness is what an answer says of the age of its state (design D15). The zero value says
// nothing: the state is kept current.
type staleness struct {
	age  time.Duration
	away bool // the apiserver does not answer
	warn bool
}

// answering is a plan that is carried out: it is known what the answer says of the age of its
// state.
type answering struct {
	plan.Plan
	stale staleness
}

// headers sets Age, and Warning from what the source has to say of the resource and from this.
func (p answering) headers(set func(key, value string)) {
	var warnings []string
	if text := p.Source.WarningText(); text != "" {
		warnings = append(warnings, text)
	}
	if p.stale.age > 0 {
		set("Age", strconv.FormatInt(int64(p.stale.age/time.Second), 10))
	}
	switch {
	case p.stale.warn && p.stale.away:
		warnings = append(warnings, awayText)
	case p.stale.warn:
		warnings = append(warnings, fmt.Sprintf(staleText, p.Source.Resource().Info))
	}
	if len(warnings) > 0 {
		set("Warning", strings.Join(warnings, ", "))
	}
}

// stale finds out how old the state behind a plan is. It reports false if it is too old to be
// shown: upstream, or the failure to reach it, answers then.
func (s *Server) stale(p plan.Plan, flow flowcontrol.Flow) (staleness, bool) {
	if p.Source.Age == nil || !p.ShowsState() {
		return staleness{}, true
	}
	age, away := p.Source.Age()
	if age <= 0 {
		return staleness{}, true
	}
	if age > s.opts.MaxStaleness {
		s.metrics.tooStale.WithLabelValues(p.Source.Resource().Info.String()).Inc()
		return staleness{}, false
	}
	s.metrics.stale.WithLabelValues(p.Source.Resource().Info.String()).Inc()
	return staleness{age, away, s.warned.due(flow, time.Now())}, true
}

// lastWarnings remembers which flows were warned lately.
type lastWarnings struct {
	mu   sync.Mutex
	last map[flowcontrol.Flow]time.Time
}

// due reports whether a flow is to be warned now, and takes it that it is.
func (w *lastWarnings) due(flow flowcontrol.Flow, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[flow]; ok && now.Sub(last) < warnEvery {
		return false
	}
	if len(w.last) >= warnedMost {
		for f, last := range w.last {
			if now.Sub(last) >= warnEvery {
				delete(w.last, f)
			}
		}
		if len(w.last) >= warnedMost {
			return false
		}
	}
	if w.last == nil {
		w.last = map[flowcontrol.Flow]time.Time{}
	}
	w.last[flow] = now
	return true
}
