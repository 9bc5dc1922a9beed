package mirror

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"spillway/internal/status"
)

const (
	// outageLogDelay is how long upstream must have been silent for the log to say so: by then every
	// mirror has noticed. outageCheckInterval is how often that is looked at.
	outageLogDelay      = 10 * time.Second
	outageCheckInterval = time.Second
)

// logOutages logs once for each outage that upstream does not answer, and once that it answers
// again, until the mirrors end. The lines of the mirrors say what became of each.
func (s *Set) logOutages() {
	var logged time.Time // since when the outage that has its line lasts; zero: there is none
	for s.pause(outageCheckInterval) {
		since := s.client.SilentSince()
		switch {
		case since.IsZero() && !logged.IsZero():
			s.log.Info("the API server answers again", zap.Duration("after", time.Since(logged).Round(time.Second)))
			logged = time.Time{}
		case !since.IsZero() && logged.IsZero() && time.Since(since) >= outageLogDelay:
			old, _, why := s.oldStates()
			s.log.Warn("the API server does not answer", zap.Time("since", since), zap.Int("oldMirrors", len(old)),
				zap.String("error", why))
			logged = since
		}
	}
}

// oldStates are the resources whose states are old because the apiserver does not answer, how old
// the oldest is, and why one of them is.
func (s *Set) oldStates() (names []string, oldest time.Duration, why string) {
	for _, m := range s.all() {
		if age, away := m.age(); age > 0 && away {
			names = append(names, m.resource.Info.String())
			oldest = max(oldest, age)
			why = cmp.Or(why, status.OneLine(m.state.State().Cause().Text))
		}
	}
	return names, oldest, why
}
