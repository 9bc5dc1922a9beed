package mirror

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/fakeapiserver"
	"spillway/internal/object"
)

// An etcd that was restored answers a watch from our version with silence. A proof notices that
// upstream is behind its own word, and the mirror starts over (D5).
func TestRestoredUpstreamIsNoticed(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	snapshot := up.Snapshot()
	m := mirroring(t, up, nil, "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	source := m.Find(fakeapiserver.ConfigMaps)
	lost := up.Create(fakeapiserver.ConfigMaps, "n", "lost")
	if err := source.Resource().AwaitRV(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	up.RestoreFrom(snapshot)
	eventually(t, "the mirror to hold what upstream holds", func() bool {
		_, _ = source.Fresh.Prove(t.Context()) // fails, and that is how it is noticed
		return source.Resource().Snapshot().Len() == 1
	})
	eventually(t, "a proof", func() bool {
		_, err := source.Fresh.Prove(t.Context())
		return err == nil
	})
	if _, err := source.Hub.ViewFor("").CursorFromRV(lost, object.Selector{}, object.Encoding{}); err == nil {
		t.Error("a past that no longer exists can be resumed")
	}
}

// So does a read of upstream's state, which is all that is sent where no bookmark comes.
func TestRestoredUpstreamIsNoticedByItsState(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	snapshot := up.Snapshot()
	m := mirroring(t, up, nil, "configmaps")
	one := m.awaitComparable(t)
	resource := one.resource
	if err := resource.AwaitRV(t.Context(), up.Create(fakeapiserver.ConfigMaps, "n", "lost")); err != nil {
		t.Fatal(err)
	}
	up.RestoreFrom(snapshot)
	generation := resource.Generation()
	if _, _, err := (checkedProber{one.prober, one}).State(t.Context()); err != nil {
		t.Fatal(err)
	}
	resource.NoteHistoryReset(generation) // as the cache does next; whichever finds out first has it listed
	eventually(t, "the mirror to hold what upstream holds", func() bool { return resource.Snapshot().Len() == 1 })
}

// Without any request, a mirror whose watch began again checks upstream by itself.
func TestRestoredUpstreamIsNoticedByItself(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	snapshot := up.Snapshot()
	m := mirroring(t, up, nil, "configmaps")
	m.active.Go(func() { m.checkHistories(time.Millisecond) })
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	resource := m.Find(fakeapiserver.ConfigMaps).Resource()
	if err := resource.AwaitRV(t.Context(), up.Create(fakeapiserver.ConfigMaps, "n", "lost")); err != nil {
		t.Fatal(err)
	}
	up.RestoreFrom(snapshot)
	eventually(t, "the mirror to hold what upstream holds", func() bool { return resource.Snapshot().Len() == 1 })
}

// A state may arrive long after its watch began, of another past than upstream had then: upstream
// is checked again.
func TestStateIsChecked(t *testing.T) {
	t.Parallel()
	gvr := fakeapiserver.ConfigMaps
	up := newUpstream(t)
	m := mirroring(t, up, nil, gvr.Resource)
	one := m.awaitComparable(t)
	eventually(t, "a state", func() bool { return one.reflector.Status().Replaces > 0 })
	asked := func(before begunCounts) int {
		n := up.Lists(gvr)
		m.checkBegun(before)
		return up.Lists(gvr) - n
	}
	if asked(begunCounts{one: one.reflector.Status().Watches}) == 0 { // as it was before there was a state
		t.Error("upstream was not asked when the state came")
	}
}

// A LIST of one resource that hangs does not hold up the questions about others.
func TestQuestionThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	m := mirroring(t, up, nil, "configmaps")
	one := m.awaitComparable(t)
	up.StallReads(fakeapiserver.ConsistentReads)
	defer up.StallReads(fakeapiserver.NoReads)
	answered := make(chan bool, 1)
	go func() { answered <- one.checkHistory(t.Context(), zap.NewNop()) }()
	select {
	case said := <-answered:
		if said {
			t.Error("a question that hangs is taken for answered")
		}
	case <-time.After(patience):
		t.Error("the question goes on")
	}
}

// However many requests notice, and however long upstream takes to send its present state, the
// mirror comes to hold it: a list that is under way is not begun again.
func TestRestoredUpstreamIsReadOnce(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	const n = 3000 // telling them takes longer than noticing
	for i := range n {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint(i))
	}
	snapshot := up.Snapshot()
	m := mirroring(t, up, nil, "configmaps")
	one := m.awaitComparable(t)
	if err := one.resource.AwaitRV(t.Context(), up.Create(fakeapiserver.ConfigMaps, "n", "lost")); err != nil {
		t.Fatal(err)
	}
	before := one.reflector.Status()
	up.RestoreFrom(snapshot)
	eventually(t, "the mirror to hold what upstream holds", func() bool {
		one.checkHistory(t.Context(), zap.NewNop())
		return one.resource.Snapshot().Len() == n
	})
	eventually(t, "its status", func() bool { return one.reflector.Status().Replaces > before.Replaces })
	after := one.reflector.Status()
	if n := after.Replaces - before.Replaces; n != 1 {
		t.Errorf("it was read %d times", n)
	}
	// one that went on, the one that told the state, and one that had just begun
	if n := after.Watches - before.Watches; n > 3 {
		t.Errorf("%d watches for that", n)
	}
}
