package mirror

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
)

// awaitComparable waits for the only mirror's state, and for its reflector to say that it is there,
// which comes later.
func (s *Set) awaitComparable(t *testing.T) *mirror {
	t.Helper()
	eventually(t, "the mirror to be comparable", func() bool { return len(s.all()) == 1 && s.all()[0].isComparable() })
	return s.all()[0]
}

// A mirror that has lost an event is found out, and holds what upstream holds again.
func TestLostEventIsFound(t *testing.T) {
	gvr := fakeapiserver.ConfigMaps
	f := func(name string, change func(*fakeapiserver.Server)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t)
			for i := range 1200 { // more than two pages
				up.Create(gvr, "n", fmt.Sprintf("o%04d", i))
			}
			m := mirroring(t, up, func(o *SetOptions) { o.CompareInterval = 0 }, "configmaps")
			one := m.awaitComparable(t)
			one.compare(t.Context(), zap.NewNop())
			if one.comparisons.Load() != 1 || one.differences.Load() != 0 {
				t.Fatalf("%d comparisons have found %d differences in a mirror that has lost nothing", one.comparisons.Load(),
					one.differences.Load())
			}
			up.LoseEvents(gvr, 1)
			change(up)
			if err := one.resource.AwaitRV(t.Context(), up.Create(gvr, "n", "z")); err != nil {
				t.Fatal(err)
			}
			m.active.Go(func() { m.compareStates(time.Millisecond) })
			eventually(t, "the difference to be counted", func() bool { return one.differences.Load() > 0 })
			eventually(t, "the mirror to hold what upstream holds", func() bool {
				want := up.List(gvr)
				s := one.resource.Snapshot()
				for _, o := range want {
					if got, ok := s.Get(o.Key); !ok || got.RV != o.RV {
						return false
					}
				}
				return s.Len() == len(want)
			})
			found := one.differences.Load()
			checks := one.comparisons.Load()
			eventually(t, "it to be compared again", func() bool { return one.comparisons.Load() > checks+1 })
			if n := one.differences.Load(); n > found+1 { // the one under way when it was read again
				t.Errorf("%d differences after it was read again, %d before", n, found)
			}
		})
	}
	f("a creation", func(up *fakeapiserver.Server) { up.Create(gvr, "n", "lost") })
	f("a change", func(up *fakeapiserver.Server) { up.Update(gvr, "n", "o0700", fakeapiserver.WithData("k", "v")) })
	f("a deletion", func(up *fakeapiserver.Server) { up.Delete(gvr, "n", "o0700") })
}

// Bytes that are other ones at the same version are found, too, within as many rounds as there are
// parts, and no stream ends for that.
func TestOtherBytesAreFound(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	for i := range 200 {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprintf("o%04d", i))
	}
	m := mirroring(t, up, func(o *SetOptions) { o.CompareInterval = 0 }, "configmaps")
	one := m.awaitComparable(t)
	source := m.Find(fakeapiserver.ConfigMaps)
	resource := source.Resource()
	cursor := source.Hub.ViewFor("").CursorAt(resource.Snapshot().Next, resource.CompleteRV(), object.Selector{},
		object.Encoding{})
	defer cursor.Close()
	o, _ := resource.Snapshot().Get("n/o0150")
	wrong, err := resource.Info.Parse(fmt.Appendf(nil,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"o0150","namespace":"n","uid":%q,"resourceVersion":"%d"}}`,
		o.UID, o.RV))
	if err != nil {
		t.Fatal(err)
	}
	if n := resource.ReplaceRepresentation([]*object.Object{wrong}); n != 1 {
		t.Fatalf("%d objects have other bytes", n)
	}
	for range compareParts {
		one.compare(t.Context(), zap.NewNop())
	}
	if n := one.differences.Load(); n == 0 {
		t.Error("it was not found")
	}
	eventually(t, "upstream's bytes", func() bool {
		got, ok := resource.Snapshot().Get("n/o0150")
		return ok && string(got.JSON()) == string(o.JSON())
	})
	if err := expired(cursor); err != nil {
		t.Errorf("a stream has ended: %v", err)
	}
}

// There is no comparison while upstream has other troubles, and a state that upstream no longer
// knows says nothing.
func TestNoComparison(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, func(o *SetOptions) { o.CompareInterval = 0 }, "configmaps")
	one := m.awaitComparable(t)
	lists := up.Lists(fakeapiserver.ConfigMaps)
	up.Create(fakeapiserver.Pods, "n", "elsewhere")
	up.Compact()
	one.compare(t.Context(), zap.NewNop())
	if one.comparisons.Load() != 0 || one.differences.Load() != 0 {
		t.Errorf("%d comparisons with a state that is gone", one.comparisons.Load())
	}
	up.Down()
	eventually(t, "upstream to be away", func() bool { return !one.reflector.Status().FailingSince.IsZero() })
	before := up.Lists(fakeapiserver.ConfigMaps)
	if before != lists+1 {
		t.Errorf("%d lists before", before-lists)
	}
	one.compare(t.Context(), zap.NewNop())
	if n := up.Lists(fakeapiserver.ConfigMaps); n != before || one.comparisons.Load() != 0 {
		t.Errorf("%d lists while upstream is unreachable", n-before)
	}
}
