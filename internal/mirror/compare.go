package mirror

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"spillway/internal/cache"
)

const (
	// compareTimeout is for one comparison. An upstream that takes longer has more to do than this.
	compareTimeout = time.Minute
	// compareParts is in how many comparisons the bytes of every object come up.
	compareParts = 64
)

// compareStates compares each mirror with upstream's state once in a period, one at a time, until
// the mirrors end. No difference is expected; but a mirror that has lost an event, by whatever
// fault, would otherwise be wrong until its object changes again.
func (m *Set) compareStates(period time.Duration) {
	for {
		all := m.all()
		pause := max(1, period/time.Duration(max(1, len(all))))
		if !m.pause(pause/2 + rand.N(pause)) { // #nosec G404 -- spreads times
			return
		}
		var longest *mirror // since it was compared
		for _, one := range m.all() {
			if longest == nil || one.compared.Before(longest.compared) {
				longest = one
			}
		}
		if longest != nil {
			longest.compared = time.Now()
			longest.compare(m.ctx, m.log)
		}
	}
}

// errOutdated says that a state is not what its mirror shows any more, so that what it differs in
// means nothing.
var errOutdated = errors.New("the mirror has begun anew meanwhile")

// comparable reports that the mirror has a state to compare, and upstream no other troubles.
func (m *mirror) comparable() bool {
	status := m.reflector.Status()
	return status.HasSynced && status.FailingSince.IsZero() && !m.representation.doubtful()
}

// compare compares a mirror with upstream, if that can be, and has it read again if they differ.
func (m *mirror) compare(ctx context.Context, log *zap.Logger) {
	replaces := m.reflector.Status().Replaces
	if !m.comparable() || replaces < m.awaited {
		return
	}
	log = log.With(zap.Stringer("resource", m.resource.Info), zap.String("version", m.resource.Info.GVR.Version))
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	state := m.resource.Snapshot()
	n, err := m.differences(ctx, state)
	if err != nil {
		log.Debug("not compared with upstream", zap.Error(err))
		return
	}
	m.checks.Add(1)
	if n == 0 {
		return
	}
	m.differing.Add(uint64(n)) // #nosec G115 -- a count
	log.Error("the mirror differs from upstream: it is read again; please report this", zap.Int("objects", n),
		zap.Uint64("resourceVersion", state.RV))
	m.awaited = replaces + 1
	m.reflector.Relist("it differs from upstream")
}

// differences counts what differs between a state and upstream's at the same resourceVersion.
func (m *mirror) differences(ctx context.Context, state *cache.Snapshot) (int, error) {
	compared := state.Compare()
	if err := m.prober.ReadVersions(ctx, state.RV, compared.CompareVersion); err != nil {
		return 0, err
	}
	part := max(1, (state.Len()+compareParts-1)/compareParts)
	if first := state.KeyAt(m.round * part); first != "" {
		objects, err := m.prober.ListFrom(ctx, state.RV, first, int64(part))
		if err != nil {
			return 0, err
		}
		for _, o := range objects {
			compared.CompareBytes(o)
		}
	}
	if m.round++; m.round*part >= state.Len() {
		m.round = 0
	}
	if !m.resource.IsCurrent(state) {
		return 0, errOutdated
	}
	return compared.Differences(), nil
}
