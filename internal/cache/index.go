package cache

import (
	"strings"

	"github.com/tidwall/btree"

	"spillway/internal/object"
)

// index finds objects by the value of one field, in the API server's order: those of one node among
// those of all (W-61).
//
// It holds keys, not objects. A change that leaves the field as it is, as nearly all do, then costs
// nothing, and a lookup finds the few keys in the tree of the same snapshot. The alternative,
// objects, would make every change one of each index.
type index struct {
	field string
	tree  *btree.BTreeG[posting]
}

// posting says that the object with a key has a value.
type posting struct{ value, key string }

// newIndexes makes the indexes of a resource.
func newIndexes(info *object.Resource) []index {
	var indexes []index
	less := func(a, b posting) bool { return a.value < b.value || a.value == b.value && a.key < b.key }
	for _, field := range info.Indexed() {
		indexes = append(indexes, index{field, btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})})
	}
	return indexes
}

// replace takes one version of an object out and another in; either may be nil.
func (x *index) replace(old, new *object.Object) {
	if old != nil && new != nil && old.Fields().Get(x.field) == new.Fields().Get(x.field) {
		return
	}
	if old != nil {
		x.tree.Delete(x.posting(old))
	}
	if new != nil {
		p := x.posting(new)
		p.value = strings.Clone(p.value) // which is a piece of the object, and outlives it here
		x.tree.Set(p)
	}
}

func (x *index) posting(o *object.Object) posting { return posting{o.Fields().Get(x.field), o.Key} }

// copyIndexes copies the indexes for a snapshot.
func copyIndexes(indexes []index) []index {
	copies := make([]index, len(indexes))
	for i, x := range indexes {
		copies[i] = index{x.field, x.tree.Copy()}
	}
	return copies
}

// hasIndexFor reports that Scan looks the selector's objects up instead of asking every one.
func (s *Snapshot) hasIndexFor(sel object.Selector) bool {
	x, _ := s.indexFor(sel)
	return x != nil
}

// indexFor is the index that knows a selector's objects, and the value that they have; nil if there
// is none.
func (s *Snapshot) indexFor(sel object.Selector) (*index, string) {
	if len(s.indexes) == 0 || sel.ScopeOnly() {
		return nil, ""
	}
	for _, term := range sel.Terms() {
		for i := range s.indexes {
			if x := &s.indexes[i]; !term.Label && term.Name == x.field && len(term.Values) == 1 {
				return x, term.Values[0]
			}
		}
	}
	return nil, ""
}

// scanIndex calls f for the objects that have a value in an index, and a key that is at least from
// and begins with prefix, until f returns false.
func (s *Snapshot) scanIndex(x *index, value, from, prefix string, f func(*object.Object) bool) {
	pivot := &object.Object{}
	x.tree.Ascend(posting{value, max(from, prefix)}, func(p posting) bool {
		if p.value != value || !strings.HasPrefix(p.key, prefix) {
			return false
		}
		pivot.Key = p.key
		o, ok := s.tree.Get(pivot)
		return !ok || f(o)
	})
}
