package rbac

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"spillway/internal/auth"
	"spillway/internal/object"
)

// PermissionTable is what LocalAuthorizer keep of one resource: of each object the little that
// decides about permissions. A mirror fills it, in upstream's order and from one goroutine: it is a
// Sink of internal/upstream.
//
// What it holds counts only while it is proven: by a question to upstream how far it is, which
// began a known time ago and whose answer the mirror has caught up with. An open watch that has
// heard of nothing proves nothing.
type PermissionTable struct {
	// Static after construction.
	tables   *tables
	resource *object.Resource
	read     func(*object.Object) (any, error)   // what is kept of an object
	note     func(key string, before, after any) // gets each difference, with the lock held; nil for what is not there
	proves   bool                                // decisions rest on it, so it has to be proven
	sooner   chan struct{}                       // holds one: there are facts that the last question is too early for

	// Guarded by tables.mu.
	entries    map[string]entry
	whole      bool          // the entries are upstream's state at a version
	reported   uint64        // the version of the last change that the mirror reported
	reached    uint64        // nothing happened in (told, reached]
	proven     time.Time     // everything that was acknowledged before is in the entries
	asked      sequence      // of the question that proved it
	generation int           // grows whenever a proof under way must not count
	advanced   chan struct{} // closed when told grows, and replaced
	restart    func()        // has the mirror begin anew
	forbidden  bool          // upstream does not let it be mirrored, and the log says so
}

// entry is what is kept of an object. Upstream had the fact at its number in the sequence or
// before, and the table has heard of every change since then.
type entry struct {
	fact  any // as the table's read made it
	place sequence
}

// sequence is where something stands in the order of what the tables of LocalAuthorizer heard and
// asked. Unlike a time it is never that of two things, and no clock that is set disturbs it.
type sequence uint64

// tables are those of LocalAuthorizer, with what they share: a lock, and the order of what they
// heard and asked.
type tables struct {
	// Static after construction.
	clock                      clock.Clock
	metrics                    *DecisionMetrics
	through                    func(context.Context, *object.Resource, uint64) (last, reached uint64, err error)
	roles, clusterRoles        *PermissionTable
	roleBindings, clusterBinds *PermissionTable
	accounts, pods             *PermissionTable // pods: nil if they are not watched

	mu sync.RWMutex
	// Guarded by mu, as are the tables.
	last    sequence  // in the order of what was heard and asked
	changed time.Time // when anything in the tables last did
}

// nextLocked is the next number in the sequence of what is heard and asked.
func (s *tables) nextLocked() sequence {
	s.last++
	return s.last
}

// provenLocked is when the oldest of the proofs of some tables began, all of which have to count
// now.
func (s *tables) provenLocked(tables ...*PermissionTable) (time.Time, bool) {
	oldest := s.clock.Now()
	for _, t := range tables {
		if !t.whole || t.proven.IsZero() {
			return time.Time{}, false
		}
		if t.proven.Before(oldest) {
			oldest = t.proven
		}
	}
	return oldest, s.counts(oldest)
}

// counts reports that what was proven at a time still counts.
func (s *tables) counts(at time.Time) bool { return s.clock.Now().Sub(at) < auth.AllowedTTL }

func (s *tables) rbacTables() []*PermissionTable {
	return []*PermissionTable{s.roles, s.clusterRoles, s.roleBindings, s.clusterBinds}
}

// Tables are all that is watched.
func (s *tables) Tables() []*PermissionTable {
	all := append(s.rbacTables(), s.accounts)
	if s.pods != nil {
		all = append(all, s.pods)
	}
	return all
}

func newTable(all *tables, resource *object.Resource, read func(*object.Object) (any, error),
	note func(string, any, any)) *PermissionTable {
	return &PermissionTable{
		tables: all, resource: resource, read: read, note: note, sooner: make(chan struct{}, 1),
		entries: map[string]entry{}, advanced: make(chan struct{}), restart: func() {},
	}
}

// Resource is what the table is about.
func (t *PermissionTable) Resource() *object.Resource { return t.resource }

// Through is the version up to which the table has been proven or told: a state that is older must
// not replace it (upstream.WithPromised).
func (t *PermissionTable) Through() uint64 {
	t.tables.mu.RLock()
	defer t.tables.mu.RUnlock()
	return t.throughLocked()
}

func (t *PermissionTable) throughLocked() uint64 { return max(t.reported, t.reached) }

// Replace takes the complete state at a version. The state may be older than what was proven, or of
// another history, as after a restore of etcd, which its version does not tell. So the table has to
// be proven anew, and each of its facts counts since now: what happened between the old state and
// this one is not known.
func (t *PermissionTable) Replace(objects []*object.Object, rv uint64) error {
	fresh := make(map[string]any, len(objects))
	for _, o := range objects {
		fact, err := t.fact(o)
		if err != nil {
			return err
		}
		fresh[o.Key] = fact
	}
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	for key := range t.entries {
		if _, still := fresh[key]; !still {
			t.dropLocked(key)
		}
	}
	heard := t.heardLocked()
	for key, fact := range fresh {
		t.putLocked(key, fact)
		t.entries[key] = entry{t.entries[key].fact, heard} // it may have been another one in between
	}
	t.doubtLocked()
	t.whole, t.reached, t.forbidden = true, 0, false
	t.tables.metrics.unwatched.WithLabelValues(t.resource.String()).Set(0)
	t.advanceLocked(rv)
	return nil
}

// Add takes a new object.
func (t *PermissionTable) Add(o *object.Object) error { return t.Update(o) }

// Update takes another version of an object.
func (t *PermissionTable) Update(o *object.Object) error {
	fact, err := t.fact(o)
	if err != nil {
		return err
	}
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.putLocked(o.Key, fact)
	t.advanceLocked(o.RV)
	return nil
}

// Delete drops an object.
func (t *PermissionTable) Delete(o *object.Object) error {
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.dropLocked(o.Key)
	t.advanceLocked(o.RV)
	return nil
}

// Bookmark is progress.
func (t *PermissionTable) Bookmark(_ *object.Bookmark, rv uint64) error {
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.advanceLocked(rv)
	return nil
}

// fact reads an object. One that cannot be read leaves the table unproven until it is replaced.
func (t *PermissionTable) fact(o *object.Object) (any, error) {
	fact, err := t.read(o)
	if err == nil {
		return fact, nil
	}
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.doubtLocked()
	t.whole = false
	return nil, fmt.Errorf("%s %s: %w", t.resource, o.Key, err)
}

// putLocked notes a difference, and keeps what is equal as it is.
func (t *PermissionTable) putLocked(key string, after any) {
	before := t.entries[key]
	if reflect.DeepEqual(before.fact, after) {
		return
	}
	t.entries[key] = entry{after, t.heardLocked()}
	t.notedLocked(key, before.fact, after)
}

func (t *PermissionTable) dropLocked(key string) {
	before, there := t.entries[key]
	if !there {
		return
	}
	delete(t.entries, key)
	t.notedLocked(key, before.fact, nil)
}

func (t *PermissionTable) notedLocked(key string, before, after any) {
	t.tables.changed = t.tables.clock.Now()
	t.note(key, before, after)
}

// heardLocked is the number of facts that the table hears of now. Tables whose facts count together
// are proven again soon.
func (t *PermissionTable) heardLocked() sequence {
	for _, other := range t.tables.together(t) {
		select {
		case other.sooner <- struct{}{}:
		default:
		}
	}
	return t.tables.nextLocked()
}

// heldLocked reports that upstream had an object's fact when a probe began: the table's last one,
// or an earlier one of another table. The table showed a state from before that probe when it
// received the fact, has shown one from after it since the proof, and has kept the fact in between
// without leaving out a change. So upstream kept it as well.
func (t *PermissionTable) heldLocked(key string, asked sequence) bool {
	e, there := t.entries[key]
	return there && e.place < asked
}

func (t *PermissionTable) advanceLocked(rv uint64) {
	t.reported = rv
	close(t.advanced)
	t.advanced = make(chan struct{})
}

// doubtLocked takes back what is proven, and what is being proven.
func (t *PermissionTable) doubtLocked() {
	t.proven = time.Time{}
	t.generation++
}

// forget makes the table one that nothing is known of. Its entries stay for the next state to be
// compared with.
func (t *PermissionTable) forget() {
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.forgetLocked()
}

func (t *PermissionTable) forgetLocked() {
	t.doubtLocked()
	t.whole, t.reported, t.reached = false, 0, 0
}

var (
	errNotMirrored = errors.New("upstream's state is not known yet")
	errRewritten   = errors.New("upstream is behind its own word: its history has been rewritten")
	errOvertaken   = errors.New("the state was replaced meanwhile")
)

// prove finds out that the table holds everything that was acknowledged before the call.
func (t *PermissionTable) prove(ctx context.Context) error {
	s := t.tables
	s.mu.Lock()
	select {
	case <-t.sooner:
	default:
	}
	began, asked := s.clock.Now(), s.nextLocked()
	from, generation, whole := t.throughLocked(), t.generation, t.whole
	s.mu.Unlock()
	if !whole || from == 0 {
		return errNotMirrored
	}
	last, reached, err := s.through(ctx, t.resource, from)
	if err != nil {
		return err
	}
	if reached < from {
		s.rewritten(t, generation)
		return errRewritten
	}
	for {
		s.mu.Lock()
		switch {
		case t.generation != generation || !t.whole:
			s.mu.Unlock()
			return errOvertaken
		case t.throughLocked() >= last:
			t.reached = max(t.reached, reached)
			t.proven, t.asked = began, asked
			s.mu.Unlock()
			return nil
		}
		advanced := t.advanced
		s.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rewritten has a table begin anew that, in a generation of its, has found out that upstream is
// behind its own word. Roles and bindings most likely have one etcd, which was restored, so they
// begin anew together: a proof of another table tells of the restore only until upstream's versions
// have grown beyond that table's.
func (s *tables) rewritten(by *PermissionTable, generation int) {
	s.mu.Lock()
	var restarts []func()
	if by.generation == generation {
		for _, t := range s.together(by) {
			t.forgetLocked()
			restarts = append(restarts, t.restart)
		}
	}
	s.mu.Unlock()
	for _, restart := range restarts {
		restart()
	}
}

// together are the tables whose facts count together with a table's, itself included: roles and
// bindings.
func (s *tables) together(t *PermissionTable) []*PermissionTable {
	if all := s.rbacTables(); slices.Contains(all, t) {
		return all
	}
	return []*PermissionTable{t}
}
