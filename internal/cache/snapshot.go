package cache

import (
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"spillway/internal/object"
)

// Snapshot is the state at one resourceVersion and the log position that follows it. Immutable.
type Snapshot struct {
	RV, Next uint64
	// Reached is what history was complete through: RV, or less if the API server's state at RV was
	// compared and found equal. Then Next does not follow RV, and a reader looks for RV instead (see
	// Log.Find).
	Reached uint64
	Bytes   int64 // of JSON

	generation uint64
	copying    sync.Mutex // taking a copy marks the copied tree
	tree       *btree.BTreeG[*object.Object]
	indexes    []index // of the same objects; a state made by SnapshotAt has none
}

// Len is the number of objects.
func (s *Snapshot) Len() int { return s.tree.Len() }

// Get is the object with a key.
func (s *Snapshot) Get(key string) (*object.Object, bool) {
	return s.tree.Get(&object.Object{Key: key})
}

// Scan calls f for the objects in the selector's scope that it matches, until f returns false. The
// order is the API server's (W-61), and the first object is the first whose key is not below from.
func (s *Snapshot) Scan(sel object.Selector, from string, f func(*object.Object) bool) {
	s.scanCandidates(sel, from, func(o *object.Object) bool { return !sel.Matches(o) || f(o) })
}

// scanCandidates is Scan for more objects, among which are all that the selector matches: the one
// with its name, those that an index finds, or all of its namespace.
func (s *Snapshot) scanCandidates(sel object.Selector, from string, f func(*object.Object) bool) {
	prefix := ""
	if sel.Namespace != "" {
		prefix = sel.Namespace + "/"
	}
	if sel.Name != "" && (prefix != "" || s.isClusterScoped()) {
		if o, ok := s.Get(prefix + sel.Name); ok && o.Key >= from {
			f(o)
		}
		return
	}
	if x, value := s.indexFor(sel); x != nil {
		s.scanIndex(x, value, from, prefix, f)
		return
	}
	s.tree.Ascend(&object.Object{Key: max(from, prefix)}, func(o *object.Object) bool {
		return strings.HasPrefix(o.Key, prefix) && f(o)
	})
}

// isClusterScoped reports that keys are names alone.
func (s *Snapshot) isClusterScoped() bool {
	o, ok := s.tree.Min()
	return ok && o.Namespace() == ""
}

// Generation is that of the history that the state belongs to (Resource.Generation).
func (s *Snapshot) Generation() uint64 { return s.generation }

// KeyAt is the key of the object that has i in front of it, "" if there are not so many.
func (s *Snapshot) KeyAt(i int) string {
	if o, ok := s.tree.GetAt(i); ok {
		return o.Key
	}
	return ""
}

// HasVersions reports whether the state has exactly these objects, by key and resourceVersion.
func (s *Snapshot) HasVersions(versions map[string]uint64) bool {
	if len(versions) != s.Len() {
		return false
	}
	same := true
	s.tree.Scan(func(o *object.Object) bool {
		rv, ok := versions[o.Key]
		same = ok && rv == o.RV
		return same
	})
	return same
}

// WithRV is the same content as the state at a later rv.
func (s *Snapshot) WithRV(rv uint64) *Snapshot {
	return &Snapshot{
		RV: rv, Next: s.Next, Reached: s.Reached, Bytes: s.Bytes, generation: s.generation, tree: s.copyTree(),
		indexes: s.indexes,
	}
}

func (s *Snapshot) copyTree() *btree.BTreeG[*object.Object] {
	s.copying.Lock()
	defer s.copying.Unlock()
	return s.tree.Copy()
}

// undo takes back what an event did to a tree.
func undo(tree *btree.BTreeG[*object.Object], e *object.Event) {
	switch {
	case e.Old != nil:
		tree.Set(e.Old)
	case e.New != nil:
		tree.Delete(e.New)
	}
}

// exactSnapshots are the few most recently requested exact states: the pages of one list share one.
type exactSnapshots struct {
	mu     sync.Mutex
	recent [8]*Snapshot
	next   int // in recent, to be replaced
}

func (x *exactSnapshots) get(rv, generation uint64) *Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.recent {
		if s != nil && s.RV == rv && s.generation == generation {
			return s
		}
	}
	return nil
}

func (x *exactSnapshots) put(s *Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recent[x.next] = s
	x.next = (x.next + 1) % len(x.recent)
}

func (x *exactSnapshots) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recent = [8]*Snapshot{}
}
