package mirror

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"spillway/internal/cache"
)

const (
	// compareTimeout is for one comparison. An upstream that takes longer has more to do than this.
	compareTimeout = time.Minute
	// compareParts is the number of comparisons in which the bytes of every object are compared once.
	compareParts = 64
)

// comparisonRound is how far the comparisons of a mirror are. The comparing goroutine owns it.
type comparisonRound struct {
	part int // of the objects' bytes that is compared next
	last time.Time
	// minReplaces is how many complete states the mirror must have received. After a difference, it is
	// not compared until the state that was requested because of it has arrived.
	minReplaces uint64
}

// compareStates compares each mirror with upstream's state once in a period, one at a time, until
// the mirrors end. No difference is expected. But a mirror that has lost an event, by whatever
// fault, would otherwise be wrong until its object changes again.
func (s *Set) compareStates(period time.Duration) {
	for {
		pause := max(1, period/time.Duration(max(1, len(s.all()))))
		if !s.pause(wait.Jitter(pause/2, 2)) {
			return
		}
		var next *mirror // whose last comparison is longest ago
		for _, m := range s.all() {
			if next == nil || m.comparisonRound.last.Before(next.comparisonRound.last) {
				next = m
			}
		}
		if next != nil {
			next.comparisonRound.last = time.Now()
			next.compare(s.ctx, s.log)
		}
	}
}

// errReplaced says that a state is not what its mirror shows any more, so that its differences mean
// nothing.
var errReplaced = errors.New("the mirror's state has been replaced meanwhile")

// isComparable reports that the mirror has a state to compare, and upstream no other troubles.
func (m *mirror) isComparable() bool {
	status := m.reflector.Status()
	return status.HasSynced && status.FailingSince.IsZero() && !m.representation.isDoubtful()
}

// compare compares a mirror with upstream, if that is possible, and has it read again if they
// differ.
func (m *mirror) compare(ctx context.Context, log *zap.Logger) {
	replaces := m.reflector.Status().Replaces
	if !m.isComparable() || replaces < m.comparisonRound.minReplaces {
		return
	}
	log = log.With(zap.Stringer("resource", m.resource.Info), zap.String("version", m.resource.Info.GVR.Version))
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	state := m.resource.Snapshot()
	n, err := m.countDifferences(ctx, state)
	if err != nil {
		log.Debug("not compared with upstream", zap.Error(err))
		return
	}
	m.comparisons.Add(1)
	if n == 0 {
		return
	}
	m.differences.Add(uint64(n)) // #nosec G115 -- a count
	log.Error("the mirror differs from upstream: it is read again; please report this", zap.Int("objects", n),
		zap.Uint64("resourceVersion", state.RV))
	m.comparisonRound.minReplaces = replaces + 1
	m.reflector.Relist("it differs from upstream")
}

// countDifferences counts the objects in which a state differs from upstream's at the same
// resourceVersion: by the versions of all, and the bytes of a part.
func (m *mirror) countDifferences(ctx context.Context, state *cache.Snapshot) (int, error) {
	compared := state.Compare()
	if err := m.prober.ReadVersions(ctx, state.RV, compared.CompareVersion); err != nil {
		return 0, err
	}
	round, size := &m.comparisonRound, max(1, (state.Len()+compareParts-1)/compareParts)
	if first := state.KeyAt(round.part * size); first != "" {
		objects, err := m.prober.ListFrom(ctx, state.RV, first, int64(size))
		if err != nil {
			return 0, err
		}
		for _, o := range objects {
			compared.CompareBytes(o)
		}
	}
	if round.part++; round.part*size >= state.Len() {
		round.part = 0
	}
	if !m.resource.IsCurrent(state) {
		return 0, errReplaced
	}
	return compared.Differences(), nil
}
