package mirror

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"spillway/internal/freshness"
	"spillway/internal/upstream/probes"
)

// historyCheck is how often mirrors are looked at that have begun another watch or state: so long a
// restored etcd may go unnoticed.
const historyCheck = 5 * time.Second

// minQuestionInterval and maxQuestionInterval are how long upstream is not asked again about a
// mirror, though the mirror has begun another watch: what cuts watches all the time would make the
// question the more expensive the less it matters.
const (
	minQuestionInterval = 15 * time.Second
	maxQuestionInterval = 30 * time.Second
)

// questionTimeout bounds one question: a LIST that hangs must not hold up the questions about other
// resources.
const questionTimeout = 5 * time.Second

// checkHistories asks upstream how far it is, for each mirror that has begun another watch or got a
// complete state, until the mirrors end. Whatever happened to upstream, watches begin anew after
// it; one that begins after its etcd was restored is silent about that, and the mirror would be
// wrong for ever if no client ever asked for a proof (see prober). A state may come of another past
// than the proofs before it, long after its watch began. It costs one LIST of one object each.
func (s *Set) checkHistories(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for checked := (checks{}); ; checked = s.checkBegun(checked) {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// checks is how many watches and states each mirror had begun when upstream last said how far it
// is.
type checks map[*mirror]uint64

// checkBegun asks upstream for the mirrors that have begun another watch or state than those
// checked before.
func (s *Set) checkBegun(before checks) checks {
	now := checks{}
	for _, m := range s.all() {
		status := m.reflector.Status()
		begun := status.Watches + status.Replaces
		switch {
		case begun == before[m]:
			now[m] = begun
		case !m.questions.Try(time.Now()):
			now[m] = before[m]
		case m.checkHistory(s.ctx, s.log):
			now[m] = begun
		}
	}
	return now
}

// checkHistory reports whether upstream said how far it is.
func (m *mirror) checkHistory(ctx context.Context, log *zap.Logger) bool {
	first, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	generation, promised := m.resource.Generation(), m.resource.PromisedRV()
	rv, same, err := m.reflector.Revision(first)
	if err == nil && same {
		m.judge(rv, generation, promised)
		return true
	}
	second, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	_, probe, err := prober{m.prober, m}.Begin(second)
	if err != nil {
		log.Debug("upstream did not say how far it is", zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return false
	}
	probe.Close()
	return true
}

// judge hears how far upstream is. One that is behind what it promised before has another history
// than the mirror's.
func (m *mirror) judge(rv, generation, promised uint64) {
	if rv < promised && m.resource.NoteHistoryReset(generation) {
		m.reflector.Relist(fmt.Sprintf("upstream is at resourceVersion %d and was at %d: its history has been "+
			"rewritten, as by an etcd restored from a backup, or more than one cluster answers at its address", rv, promised))
	}
}

// prober shows upstream's prober as the cache wants it. A watch from a resourceVersion that
// upstream has not reached is silent (W-106), so a restored etcd shows itself only to a question of
// how far it is: an upstream that is behind its own word is relisted. It is relisted once, whatever
// finds out: a list that takes long would never be complete if each finder began it anew.
type prober struct {
	*probes.Prober
	mirror *mirror
}

func (p prober) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	generation, promised := p.mirror.resource.Generation(), p.mirror.resource.PromisedRV()
	rv, probe, err := p.Prober.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	p.mirror.judge(rv, generation, promised)
	return rv, proof{probe}, nil
}

// State implements freshness.Upstream.
func (p prober) State(ctx context.Context) (uint64, map[string]uint64, error) {
	generation, promised := p.mirror.resource.Generation(), p.mirror.resource.PromisedRV()
	rv, versions, err := p.Prober.State(ctx)
	if err == nil {
		p.mirror.judge(rv, generation, promised)
	}
	return rv, versions, err
}

// proof shows upstream's probe as the cache wants it.
type proof struct{ *probes.Probe }

func (p proof) Prove(ctx context.Context, from uint64) (bookmark, last uint64, err error) {
	progress, err := p.Probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	return max(progress.Bookmark, progress.Last), progress.Last, nil
}
