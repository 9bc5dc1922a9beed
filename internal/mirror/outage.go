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
func (m *Set) logOutages() {
	var logged time.Time // since when the outage that has its line lasts; zero: there is none
	for m.pause(outageCheckInterval) {
		since := m.client.SilentSince()
		switch {
		case since.IsZero() && !logged.IsZero():
			m.log.Info("the API server answers again", zap.Duration("after", time.Since(logged).Round(time.Second)))
			logged = time.Time{}
		case !since.IsZero() && logged.IsZero() && time.Since(since) >= outageLogDelay:
			old, _, why := m.oldStates()
			m.log.Warn("the API server does not answer", zap.Time("since", since), zap.Int("oldMirrors", len(old)),
				zap.String("error", why))
			logged = since
		}
	}
}

// oldStates are the resources whose states are old because the apiserver does not answer, how old
// the oldest is, and why one of them is.
func (m *Set) oldStates() (names []string, oldest time.Duration, why string) {
	for _, one := range m.all() {
		if age, away := one.age(); age > 0 && away {
			names = append(names, one.resource.Info.String())
			oldest = max(oldest, age)
			why = cmp.Or(why, status.OneLine(one.state.State().Cause().Text))
		}
	}
	return names, oldest, why
}
