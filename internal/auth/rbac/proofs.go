package rbac

import (
	"context"
	"errors"
	"time"

	"spillway/internal/auth"
)

var (
	errNotMirrored = errors.New("upstream's state is not known yet")
	errRewritten   = errors.New("upstream is behind its own word: its history has been rewritten")
	errOvertaken   = errors.New("the state was replaced meanwhile")
)

// proof is a proof of a table under way.
type proof struct {
	began      time.Time
	asked      sequence
	from       uint64 // the version that the table had
	generation int
}

// prove finds out that the table holds everything that was acknowledged before the call.
func (t *PermissionTable) prove(ctx context.Context) error {
	p, err := t.beginProof()
	if err != nil {
		return err
	}
	last, reached, err := t.tables.proveThrough(ctx, t.resource, p.from)
	switch {
	case err != nil:
		return err
	case reached < p.from:
		t.tables.restartRewritten(t, p.generation)
		return errRewritten
	}
	for {
		advanced, err := t.tryEndProof(p, last, reached)
		if advanced == nil {
			return err
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (t *PermissionTable) beginProof() (proof, error) {
	s := t.tables
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.proveSooner:
	default:
	}
	p := proof{began: s.clock.Now(), asked: s.nextLocked(), from: t.throughLocked(), generation: t.generation}
	if !t.isWhole || p.from == 0 {
		return proof{}, errNotMirrored
	}
	return p, nil
}

// tryEndProof ends a proof once the mirror has caught up with last. While it has not, advanced is
// when to try again; nil: the proof is over, and err is its result.
func (t *PermissionTable) tryEndProof(p proof, last, reached uint64) (advanced <-chan struct{}, err error) {
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	switch {
	case t.generation != p.generation || !t.isWhole:
		return nil, errOvertaken
	case t.throughLocked() < last:
		return t.advanced, nil
	}
	t.reached = max(t.reached, reached)
	t.proven, t.asked = p.began, p.asked
	return nil, nil
}

// restartRewritten restarts a table that, in one of its generations, has found the API server
// behind a version that it showed before. Roles and bindings most likely share the etcd that was
// restored, so they restart together: a proof of another table shows the restore only until the API
// server's versions have grown beyond that table's.
func (s *tables) restartRewritten(by *PermissionTable, generation int) {
	s.mu.Lock()
	var restarts []func()
	if by.generation == generation {
		for _, t := range s.decidedTogether(by) {
			t.forgetLocked()
			restarts = append(restarts, t.restart)
		}
	}
	s.mu.Unlock()
	for _, restart := range restarts {
		restart()
	}
}

// isRecent reports that what was proven at a time still counts.
func (s *tables) isRecent(at time.Time) bool { return s.clock.Now().Sub(at) < auth.AnswerTTL }

// provenLocked is when the oldest proof of some tables began. It reports false unless each of them
// has one that still counts.
func (s *tables) provenLocked(tables ...*PermissionTable) (time.Time, bool) {
	oldest := s.clock.Now()
	for _, t := range tables {
		if !t.isWhole || t.proven.IsZero() {
			return time.Time{}, false
		}
		if t.proven.Before(oldest) {
			oldest = t.proven
		}
	}
	return oldest, s.isRecent(oldest)
}

// hadFactLocked reports that the API server had an object's fact when a question was sent: the last
// one of this table, or an earlier one of another table. The table showed a state from before the
// question when it received the fact, and shows one from after it since the proof. In between it
// has left out no change, and the fact is still the same. So the API server kept it as well.
func (t *PermissionTable) hadFactLocked(key string, asked sequence) bool {
	e, there := t.entries[key]
	return there && e.received < asked
}

// togetherLocked is the last moment at which the API server is known to have had a binding and its
// role as they are here. It is when the older of the proofs of their tables began, if both were
// here by then. It reports false if there is no such moment, or it does not count any more.
//
// Moments of this process are compared, not versions of two resources. An API server may keep the
// two in two etcds (--etcd-servers-overrides), whose versions say nothing about each other, and
// nothing the API server tells whether it does.
func (s *tables) togetherLocked(b *binding) (at time.Time, ok bool) {
	bindings, roles := s.roleBindings, s.roles
	if b.isEverywhere {
		bindings = s.clusterRoleBindings
	}
	if b.role.isCluster {
		roles = s.clusterRoles
	}
	asked := min(bindings.asked, roles.asked)
	at, ok = s.provenLocked(bindings, roles)
	return at, ok && bindings.hadFactLocked(b.key, asked) && roles.hadFactLocked(b.role.key(), asked)
}
