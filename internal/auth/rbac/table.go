package rbac

import (
	"fmt"
	"reflect"
	"time"

	"spillway/internal/object"
)

// PermissionTable is what a LocalAuthorizer keeps of one resource: of each object the fact that
// decides about permissions. A mirror fills it, in the API server's order and from one goroutine:
// it is a Sink of internal/upstream.
//
// It is empty or partial until the mirror has listed the resource, and whole from then on. What it
// holds decides only while it is proven as well: the API server answered a question, sent a known
// time ago, with how far it is, and the mirror has caught up. An open watch that has received
// nothing proves nothing.
type PermissionTable struct {
	// Static after construction.
	tables     *tables
	resource   *object.Resource
	readFact   func(*object.Object) (any, error)
	noteChange func(key string, before, after any) // with the lock held; a fact is nil while there is no object
	needsProof bool                                // decisions rest on it
	// proveSooner holds one while there are facts that came after the last question; nil: the facts of
	// the table decide alone, so that an old proof and a new fact do not matter.
	proveSooner chan struct{}

	// Guarded by tables.mu.
	entries     map[string]entry
	isWhole     bool          // the entries are the API server's state at a version
	reported    uint64        // the version of the last change that the mirror reported
	reached     uint64        // nothing happened in (reported, reached]
	proven      time.Time     // the entries have everything that was acknowledged before; zero: not proven
	question    sequence      // the number of the question that proved it
	generation  int           // grows whenever a proof under way must not count
	advanced    chan struct{} // closed when the mirror reports something, and replaced
	restart     func()        // has the mirror list again
	isForbidden bool          // the API server does not let it be mirrored, and the log says so
}

// entry is what is kept of an object. The API server had the fact when the table received it, and
// the table has received every change since then.
type entry struct {
	fact     any // as the table's readFact made it
	received sequence
}

func newTable(all *tables, resource *object.Resource, readFact func(*object.Object) (any, error),
	noteChange func(string, any, any)) *PermissionTable {
	return &PermissionTable{
		tables: all, resource: resource, readFact: readFact, noteChange: noteChange,
		entries: map[string]entry{}, advanced: make(chan struct{}), restart: func() {},
	}
}

// Resource is what the table is about.
func (t *PermissionTable) Resource() *object.Resource { return t.resource }

// Through is the version up to which the table is known to be complete: an older state must not
// replace it (upstream.WithPromised).
func (t *PermissionTable) Through() uint64 {
	t.tables.mu.RLock()
	defer t.tables.mu.RUnlock()
	return t.throughLocked()
}

func (t *PermissionTable) throughLocked() uint64 { return max(t.reported, t.reached) }

// Replace takes the complete state at a version. The state may be older than what was proven. It
// may be of another history, as after a restore of etcd, which its version does not tell. So the
// table has to be proven again, and all of its facts get a new number: what happened between the
// old state and this one is not known.
func (t *PermissionTable) Replace(objects []*object.Object, rv uint64) error {
	facts := make(map[string]any, len(objects))
	for _, o := range objects {
		fact, err := t.fact(o)
		if err != nil {
			return err
		}
		facts[o.Key] = fact
	}
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	for key := range t.entries {
		if _, still := facts[key]; !still {
			t.dropLocked(key)
		}
	}
	received := t.receivedLocked()
	for key, fact := range facts {
		t.putLocked(key, fact)
		t.entries[key] = entry{t.entries[key].fact, received} // it may have been another one in between
	}
	t.doubtLocked()
	t.isWhole, t.reached, t.isForbidden = true, 0, false
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
	fact, err := t.readFact(o)
	if err == nil {
		return fact, nil
	}
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.doubtLocked()
	t.isWhole = false
	return nil, fmt.Errorf("%s %s: %w", t.resource, o.Key, err)
}

// putLocked takes a fact. One that is equal stays as it is.
func (t *PermissionTable) putLocked(key string, after any) {
	before := t.entries[key]
	if reflect.DeepEqual(before.fact, after) {
		return
	}
	t.entries[key] = entry{after, t.receivedLocked()}
	t.changedLocked(key, before.fact, after)
}

func (t *PermissionTable) dropLocked(key string) {
	before, there := t.entries[key]
	if !there {
		return
	}
	delete(t.entries, key)
	t.changedLocked(key, before.fact, nil)
}

func (t *PermissionTable) changedLocked(key string, before, after any) {
	t.tables.changed = t.tables.clock.Now()
	t.noteChange(key, before, after)
}

// receivedLocked is the number of facts that the table receives now. Tables whose facts decide
// together are proven again soon.
func (t *PermissionTable) receivedLocked() sequence {
	for _, other := range t.tables.decidedTogether(t) {
		select {
		case other.proveSooner <- struct{}{}:
		default:
		}
	}
	return t.tables.nextLocked()
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

// forget makes the table one that nothing is known of. Its entries stay, to compare the next state
// with.
func (t *PermissionTable) forget() {
	t.tables.mu.Lock()
	defer t.tables.mu.Unlock()
	t.forgetLocked()
}

func (t *PermissionTable) forgetLocked() {
	t.doubtLocked()
	t.isWhole, t.reported, t.reached = false, 0, 0
}
