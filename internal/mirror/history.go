package mirror

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"spillway/internal/freshness"
	"spillway/internal/upstream/probes"
)

const (
	// historyCheckInterval is how often mirrors are looked at that have begun another watch or state:
	// for so long a restored etcd may go unnoticed.
	historyCheckInterval = 5 * time.Second
	// minRevisionInterval and maxRevisionInterval are how long upstream's resourceVersion is not
	// requested again for a mirror that has begun another watch. Otherwise a proxy that cuts watches
	// all the time would cause as many requests.
	minRevisionInterval = 15 * time.Second
	maxRevisionInterval = 30 * time.Second
	// revisionTimeout bounds one request: a LIST that hangs must not delay those for other resources.
	revisionTimeout = 5 * time.Second
)

// checkHistories reads upstream's resourceVersion for each mirror that has begun another watch or
// state, until the mirrors end. It costs one LIST of one object each.
//
// A watch from a resourceVersion that upstream has not reached is silent (W-106). So after etcd was
// restored, a mirror whose clients request no proofs would be wrong until the version is reached.
// Watches begin again after any restart of upstream, so that is when to check. A state is checked
// because it may have another history than the proofs before it, long after its watch began.
func (s *Set) checkHistories(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for checked := (begunCounts{}); ; checked = s.checkBegun(checked) {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// begunCounts is how many watches and states each mirror had begun when its history was last
// checked.
type begunCounts map[*mirror]uint64

// checkBegun checks the mirrors that have begun another watch or state since their last check.
func (s *Set) checkBegun(before begunCounts) begunCounts {
	now := begunCounts{}
	for _, m := range s.all() {
		status := m.reflector.Status()
		begun := status.Watches + status.Replaces
		switch {
		case begun == before[m]:
			now[m] = begun
		case !m.historyPace.Try(time.Now()):
			now[m] = before[m]
		case m.checkHistory(s.ctx, s.log):
			now[m] = begun
		}
	}
	return now
}

// checkHistory reports whether upstream said how far it is. The question travels on the connection
// of the watch, if that is possible: behind one address there may be several clusters.
func (m *mirror) checkHistory(ctx context.Context, log *zap.Logger) bool {
	first, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	mark := m.markHistory()
	rv, same, err := m.reflector.Revision(first)
	if err == nil && same {
		m.noteRevision(rv, mark)
		return true
	}
	second, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	_, probe, err := checkedProber{m.prober, m}.Begin(second)
	if err != nil {
		log.Debug("upstream did not say how far it is", zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return false
	}
	probe.Close()
	return true
}

// historyMark is how far the mirror's history is at the moment of a question.
type historyMark struct{ generation, promisedRV uint64 }

func (m *mirror) markHistory() historyMark {
	return historyMark{m.resource.Generation(), m.resource.PromisedRV()}
}

// noteRevision has the mirror listed again if upstream is behind a version that it promised
// earlier: then its history is another one than the mirror's. That happens once for each
// generation, because a long LIST would never end if each finder began it again.
func (m *mirror) noteRevision(rv uint64, asked historyMark) {
	if rv < asked.promisedRV && m.resource.NoteHistoryReset(asked.generation) {
		m.reflector.Relist(fmt.Sprintf("upstream is at resourceVersion %d and was at %d: its history has been "+
			"rewritten, as by an etcd restored from a backup, or more than one cluster answers at its address",
			rv, asked.promisedRV))
	}
}

// checkedProber is a freshness.Upstream that notices from upstream's answers that its history is
// another one.
type checkedProber struct {
	*probes.Prober
	mirror *mirror
}

// Begin implements freshness.Upstream.
func (p checkedProber) Begin(ctx context.Context) (uint64, freshness.Proof, error) {
	mark := p.mirror.markHistory()
	rv, probe, err := p.Prober.Begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	p.mirror.noteRevision(rv, mark)
	return rv, proof{probe}, nil
}

// State implements freshness.Upstream.
func (p checkedProber) State(ctx context.Context) (uint64, map[string]uint64, error) {
	mark := p.mirror.markHistory()
	rv, versions, err := p.Prober.State(ctx)
	if err == nil {
		p.mirror.noteRevision(rv, mark)
	}
	return rv, versions, err
}

// proof is a probes.Probe as a freshness.Proof. An event proves as much as a bookmark.
type proof struct{ *probes.Probe }

// Prove implements freshness.Proof.
func (p proof) Prove(ctx context.Context, from uint64) (bookmark, last uint64, err error) {
	progress, err := p.Probe.Prove(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	return max(progress.Bookmark, progress.Last), progress.Last, nil
}
