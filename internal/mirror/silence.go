package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/freshness"
	"spillway/internal/mirror/states"
	"spillway/internal/status"
	"spillway/internal/upstream"
)

const (
	// silenceTimeout is how long a mirror's watch may send nothing until the mirror is proven:
	// upstream's bookmarks come each minute (W-111), unless nothing at all has happened since the
	// watch began.
	silenceTimeout = 75 * time.Second
	// silenceCheckInterval is how often silent mirrors are looked for, and silenceProofsLimit how many
	// are proven at the same time.
	silenceCheckInterval = 5 * time.Second
	silenceProofsLimit   = 8
	// silenceProofTimeout is for a proof: two requests of three seconds each at most, one after the
	// other.
	silenceProofTimeout = 7 * time.Second
)

// watchSilence proves mirrors that have received nothing for longer than limit, until they end. A
// watch may deliver nothing though its connection is alive: an API server whose own watch hangs, or
// a proxy on the way, can keep it open. Then nothing is missing that could be noticed.
func (s *Set) watchSilence(limit, every time.Duration) {
	provenAt := map[*mirror]time.Time{} // when a silent mirror was last proven
	for s.pause(every) {
		var proofs errgroup.Group
		proofs.SetLimit(silenceProofsLimit)
		mirrors := s.all()
		for _, m := range mirrors {
			status := m.reflector.Status()
			if !status.HasSynced || !status.FailingSince.IsZero() ||
				time.Since(status.Contact) < limit || time.Since(provenAt[m]) < limit {
				continue
			}
			provenAt[m] = time.Now() // a watch that is replaced has time to show that it lives
			proofs.Go(func() error {
				m.replaceUnlessProven(s.ctx)
				return nil
			})
		}
		_ = proofs.Wait() // no function returns an error
		maps.DeleteFunc(provenAt, func(m *mirror, _ time.Time) bool { return !slices.Contains(mirrors, m) })
	}
}

// replaceUnlessProven replaces the watch of a mirror that cannot be proven to hold what upstream
// holds. The new one continues where the old one was, so that neither upstream lists nor a client
// notices. An upstream that refuses to say what it holds says nothing of the watch.
func (m *mirror) replaceUnlessProven(ctx context.Context) {
	proving, cancel := context.WithTimeout(ctx, silenceProofTimeout)
	defer cancel()
	_, err := m.source.Fresh.Prove(proving)
	if err == nil || ctx.Err() != nil || isProofRefused(err) {
		return
	}
	m.moveState(func() {
		m.state.Interrupt(states.Cause{Why: states.WhyWatchStalled,
			Text: "the watch is silent, and the mirror is not proven current: " + status.OneLine(err.Error())})
	})
	m.silentWatches.Add(1)
	m.reflector.Renew()
}

// isProofRefused reports that upstream did not say how far it is. If it did, and then refuses the
// comparison, that excuses no watch.
func isProofRefused(err error) bool {
	var answer apierrors.APIStatus
	return !errors.Is(err, freshness.ErrNotProven) && errors.As(err, &answer) && upstream.IsUnavailable(err)
}
