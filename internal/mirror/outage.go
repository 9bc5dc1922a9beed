package mirror

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"spillway/internal/status"
)

const (
	// outageLogDelay is how long upstream must have been silent for the log to say so: by then every
	// mirror has noticed.
	outageLogDelay      = 10 * time.Second
	outageCheckInterval = time.Second
)

// logOutages logs once for each outage that upstream does not answer, and once that it answers
// again, until the mirrors end. The lines of the mirrors say what became of each.
func (s *Set) logOutages() {
	var logged time.Time // the beginning of the outage that has its line; zero: there is none
	for s.pause(outageCheckInterval) {
		since := s.client.SilentSince()
		switch {
		case since.IsZero() && !logged.IsZero():
			s.log.Info("the API server answers again", zap.Duration("after", time.Since(logged).Round(time.Second)))
			logged = time.Time{}
		case !since.IsZero() && logged.IsZero() && time.Since(since) >= outageLogDelay:
			stale := s.staleStates() // none, if what does not answer keeps the watches open, as another Spillway does
			reason := cmp.Or(stale.reason, status.OneLine(s.client.SilenceCause()))
			s.log.Warn("the API server does not answer", zap.Time("since", since),
				zap.Int("oldMirrors", len(stale.resources)), zap.String("error", reason))
			logged = since
		}
	}
}

// staleStates are states that are old because the API server does not answer.
type staleStates struct {
	resources []string
	oldest    time.Duration // age
	reason    string        // of one of them
}

func (s *Set) staleStates() staleStates {
	stale := staleStates{resources: []string{}}
	for _, m := range s.all() {
		if age, unreachable := m.age(); unreachable {
			stale.resources = append(stale.resources, m.resource.Info.String())
			stale.oldest = max(stale.oldest, age)
			stale.reason = cmp.Or(stale.reason, status.OneLine(m.state.State().Cause().Text))
		}
	}
	return stale
}
