package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"spillway/internal/object"
)

// placed is a version of namespace/name on a node, "" for none.
func placed(t testing.TB, namespace, name, node string, rv uint64) *object.Object {
	t.Helper()
	o, err := pods.Parse(fmt.Appendf(
		nil, `{"metadata":{"name":%q,"namespace":%q,"uid":"u","resourceVersion":"%d","labels":{"odd":"%d"}},"spec":`+
			`{"nodeName":%q}}`,
		name, namespace, rv, rv%2, node))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func onNode(namespace, node, label string) object.Selector {
	l, err := labels.Parse(label)
	if err != nil {
		panic(err)
	}
	return object.NewSelector(namespace, "", l, fields.OneTermEqualSelector("spec.nodeName", node))
}

// keysOf are what a scan finds.
func keysOf(s *Snapshot, sel object.Selector, from string) []string {
	keys := []string{}
	s.Scan(sel, from, func(o *object.Object) bool {
		keys = append(keys, fmt.Sprintf("%s@%d", o.Key, o.RV))
		return true
	})
	return keys
}

// checkIndex compares what is looked up with what is found by asking every object.
func checkIndex(t *testing.T, s *Snapshot) {
	t.Helper()
	for _, namespace := range []string{"", "a", "b", "none"} {
		for _, node := range []string{"", "n0", "n1", "n10", "none"} {
			for _, label := range []string{"", "odd=1"} {
				for _, from := range []string{"", "a/3", "b/", "z"} {
					sel := onNode(namespace, node, label)
					if !s.hasIndexFor(sel) {
						t.Fatalf("%s is not looked up", sel.Key())
					}
					want := []string{}
					s.tree.Scan(func(o *object.Object) bool {
						if o.Key >= from && sel.Matches(o) {
							want = append(want, fmt.Sprintf("%s@%d", o.Key, o.RV))
						}
						return true
					})
					if got := keysOf(s, sel, from); !slices.Equal(got, want) {
						t.Fatalf("at %d, %s from %q: %v, want %v", s.RV, sel.Key(), from, got, want)
					}
				}
			}
		}
	}
}

// What an index finds is what a scan finds, in every snapshot that was ever published, whatever
// happened before and since.
func TestAnIndexFindsWhatAScanFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	nodes := []string{"", "n0", "n1", "n10"}
	r := newPods(unlimited)
	var published []*Snapshot
	random := func(rv uint64) *object.Object {
		return placed(t, []string{"a", "b"}[rng.IntN(2)], fmt.Sprint(rng.IntN(8)), nodes[rng.IntN(len(nodes))], rv)
	}
	list := func(rv uint64) []*object.Object {
		byKey := map[string]*object.Object{}
		for i := range uint64(10) {
			o := random(rv - i)
			byKey[o.Key] = o
		}
		var all []*object.Object
		for _, o := range byKey {
			all = append(all, o)
		}
		return all
	}
	_ = r.Replace(list(100), 100)
	for rv := uint64(120); rv < 1200; rv += 20 {
		switch rng.IntN(8) {
		case 0:
			_ = r.Replace(list(rv), rv)
		case 1:
			now := random(r.CompleteRV())
			if old, ok := r.Snapshot().Get(now.Key); ok {
				r.ReplaceRepresentation([]*object.Object{placed(t, old.Namespace(), old.Name(), "n10", old.RV)})
			}
		case 2, 3:
			_ = r.Delete(random(rv))
		default:
			_ = r.Update(random(rv))
		}
		published = append(published, r.Snapshot(), r.Snapshot().WithRV(rv+1))
		checkIndex(t, r.Snapshot())
	}
	for _, s := range published {
		checkIndex(t, s)
	}
}

// A scan that is stopped finds no more.
func TestAStoppedScanOfAnIndexFindsNoMore(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace([]*object.Object{placed(t, "a", "1", "n0", 1), placed(t, "a", "2", "n0", 2)}, 5)
	n := 0
	r.Snapshot().Scan(onNode("", "n0", ""), "", func(*object.Object) bool { n++; return false })
	if n != 1 {
		t.Errorf("%d objects", n)
	}
}

// A lookup that no index covers evaluates every object: other conditions, fields that are not
// indexed, states of the past.
func TestALookupWithoutAnIndexEvaluatesEveryObject(t *testing.T) {
	r := newPods(unlimited)
	_ = r.Replace([]*object.Object{placed(t, "a", "1", "n0", 1), placed(t, "a", "2", "n1", 2)}, 5)
	_ = r.Update(placed(t, "a", "2", "n0", 7))
	past, err := r.SnapshotAt(5)
	if err != nil {
		t.Fatal(err)
	}
	if got := keysOf(past, onNode("", "n0", ""), ""); past.hasIndexFor(onNode("", "n0", "")) ||
		!slices.Equal(got, []string{"a/1@1"}) {
		t.Errorf("in the past: %v", got)
	}
	for _, f := range []string{"spec.nodeName!=n1", "status.phase=", "metadata.namespace=a"} {
		sel := object.NewSelector("", "", nil, fields.ParseSelectorOrDie(f))
		if got := keysOf(r.Snapshot(), sel, ""); r.Snapshot().hasIndexFor(sel) || len(got) != 2 {
			t.Errorf("%s: %v", f, got)
		}
	}
	if r.Snapshot().hasIndexFor(object.Selector{}) {
		t.Error("everything is looked up")
	}
}

// BenchmarkNode is a LIST of the pods of one of 100 nodes, of 5000.
func BenchmarkNode(b *testing.B) {
	r := newPods(unlimited)
	var all []*object.Object
	for i := range 5000 {
		all = append(all, placed(b, "a", fmt.Sprintf("%05d", i), fmt.Sprint("n", i%100), uint64(i+1)))
	}
	_ = r.Replace(all, 6000)
	sel := onNode("", "n7", "")
	scan := func(b *testing.B, s *Snapshot) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			s.Scan(sel, "", func(*object.Object) bool { n++; return true })
			if n != 50 {
				b.Fatal(n)
			}
		}
	}
	b.Run("index", func(b *testing.B) { scan(b, r.Snapshot()) })
	b.Run("scan", func(b *testing.B) {
		s := r.Snapshot().WithRV(6001)
		s.indexes = nil
		scan(b, s)
	})
	b.Run("update", func(b *testing.B) {
		b.ReportAllocs()
		rv := uint64(7000)
		var versions []*object.Object
		for i := range 1000 {
			versions = append(versions, placed(b, "a", fmt.Sprintf("%05d", i), fmt.Sprint("n", i%100), rv))
		}
		for b.Loop() {
			rv++
			o := versions[rv%1000]
			old, _ := r.mu.tree.Set(o)
			r.accountLocked(old, o)
			r.publishLocked(rv)
		}
	})
}
