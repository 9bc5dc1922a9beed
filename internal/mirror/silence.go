package mirror

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/freshness"
	"spillway/internal/mirror/states"
	"spillway/internal/status"
	"spillway/internal/upstream"
)

const (
	// silenceTimeout is how long a mirror's watch may tell nothing before it is doubted: upstream's
	// bookmarks come each minute (W-111), unless nothing at all has happened since the watch began.
	silenceTimeout = 75 * time.Second
	// watchdogTick is how often mirrors are looked at, and doubtsAtOnce how many are doubted at the
	// same time.
	watchdogTick = 5 * time.Second
	doubtsAtOnce = 8
	// doubtTimeout is for a proof: two questions of three seconds each at most, one after the other.
	doubtTimeout = 7 * time.Second
)

// watchSilence doubts mirrors that have heard nothing for long, until they end. A watch may be dead
// though its connection is alive: an apiserver whose own watch hangs, or whatever stands between,
// can keep it open for ever and tell nothing; nothing is then missing that could be noticed.
func (m *Set) watchSilence(limit, every time.Duration) {
	heard := map[*mirror]time.Time{} // when one was proven current
	for m.pause(every) {
		still := map[*mirror]time.Time{}
		var doubts errgroup.Group
		doubts.SetLimit(doubtsAtOnce)
		for _, one := range m.all() {
			status := one.reflector.Status()
			still[one] = heard[one]
			if !status.HasSynced || !status.FailingSince.IsZero() || time.Since(newer(status.Contact, heard[one])) < limit {
				continue
			}
			still[one] = time.Now() // one that is replaced has time to show that it lives
			doubts.Go(func() error {
				one.proveAlive(m.ctx)
				return nil
			})
		}
		_ = doubts.Wait() // no function returns an error
		heard = still
	}
}

func newer(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// proveAlive replaces the watch of a mirror that cannot be proven to hold what upstream holds. The
// new one goes on where the old one was, so that neither upstream lists nor a client notices. An
// upstream that refuses to say what it holds says nothing of the watch.
func (m *mirror) proveAlive(ctx context.Context) {
	proving, cancel := context.WithTimeout(ctx, doubtTimeout)
	defer cancel()
	_, err := m.source.Fresh.Prove(proving)
	if err == nil || ctx.Err() != nil || refused(err) {
		return
	}
	m.step(func() {
		m.state.Interrupt(states.Cause{Why: states.WhyWatchStalled,
			Text: "the watch is silent, and the mirror is not proven current: " + status.OneLine(err.Error())})
	})
	m.replaced.Add(1)
	m.reflector.Renew()
}

// refused reports that upstream refused the question of how far it is. A comparison that is refused
// after an answer to it excuses no watch.
func refused(err error) bool {
	var status apierrors.APIStatus
	return !errors.Is(err, freshness.ErrNotProven) && errors.As(err, &status) && upstream.IsUnavailable(err)
}
