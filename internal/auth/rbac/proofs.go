package rbac

import (
	"context"
	"errors"
	"time"
)

var (
	errNotMirrored = errors.New("upstream's state is not known yet")
	// errRewritten: the API server's version went back.
	errRewritten = errors.New("upstream is behind its own word: its history has been rewritten")
	errOvertaken = errors.New("the state was replaced meanwhile")
)

// proof is one attempt to prove a table.
type proof struct {
	began      time.Time
	question   sequence // its number
	through    uint64   // the version that the table had
	generation int      // that the table had
}

// prove finds out that the table holds everything that was acknowledged before the call. It
//
//   - notes the version that the table has (beginProof);
//   - requests the API server's version: last is what the table has to reach, and nothing happened
//     between last and reached (LocalAuthorizerOptions.ProveThrough);
//   - waits until the mirror has caught up with last (tryEndProof).
//
// One goroutine calls prove for each table.
func (t *PermissionTable) prove(ctx context.Context) error {
	p, err := t.beginProof()
	if err != nil {
		return err
	}
	last, reached, err := t.tables.proveThrough(ctx, t.resource, p.through)
	switch {
	case err != nil:
		return err
	case reached < p.through:
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
	case <-t.proveSooner: // this proof serves a pending request for one
	default:
	}
	p := proof{began: s.clock.Now(), question: s.nextLocked(), through: t.throughLocked(), generation: t.generation}
	if !t.isWhole || p.through == 0 {
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
	t.proven, t.question = p.began, p.question
	return nil, nil
}

// restartRewritten restarts a table that, in one of its generations, has found the API server
// behind a version that it showed before. Roles and bindings most likely share the etcd that was
// restored, so they restart together. Otherwise a proof of another table would show the restore
// only until the API server's versions have grown beyond that table's.
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
	// Without the lock: a restart cancels a context, which may run code of the mirror.
	for _, restart := range restarts {
		restart()
	}
}
