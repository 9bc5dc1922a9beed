package mirror

import (
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/fakeapiserver"
	"spillway/internal/freshness"
	"spillway/internal/object"
)

// A watch that is open and tells nothing is replaced by one that goes on where it was: nothing is
// listed and no stream ends.
func TestSilentWatchIsReplaced(t *testing.T) {
	t.Parallel()
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "configmaps")
	one := m.awaitComparable(t)
	source := m.Find(fakeapiserver.ConfigMaps)
	resource := source.Resource()
	cursor := source.Hub.ViewFor("").CursorAt(resource.Snapshot().Next, resource.CompleteRV(), object.Selector{},
		object.Encoding{})
	defer cursor.Close()
	lists := one.reflector.Status().Replaces

	up.HoldWatch(fakeapiserver.ConfigMaps)
	lost := up.Create(fakeapiserver.ConfigMaps, "n", "b")
	m.active.Go(func() { m.watchSilence(time.Millisecond, time.Millisecond) })
	if err := resource.AwaitRV(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if one.silentWatches.Load() == 0 {
		t.Error("it is not counted")
	}
	if n := one.reflector.Status().Replaces; n != lists {
		t.Errorf("%d complete states, %d before", n, lists)
	}
	if err := expired(cursor); err != nil {
		t.Errorf("a stream has ended: %v", err)
	}
}

// A watch that is silent because nothing happens is left alone, and so is one while upstream
// refuses the question of how far it is.
func TestQuietWatchIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]bool{"proven": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newUpstream(t)
			up.Create(fakeapiserver.ConfigMaps, "n", "a")
			m := mirroring(t, up, nil, "configmaps")
			m.awaitReady(t, fakeapiserver.ConfigMaps)
			one := m.all()[0]
			up.Create(fakeapiserver.Pods, "n", "elsewhere") // so that only a watch can prove it
			if refuses {
				up.FailProbes(1000, http.StatusTooManyRequests)
			}
			before := one.prober.Stats().Probes
			m.active.Go(func() { m.watchSilence(time.Millisecond, time.Millisecond) })
			eventually(t, "proofs", func() bool { return one.prober.Stats().Probes >= before+5 })
			if n := one.silentWatches.Load(); n != 0 || one.reflector.Status().Watches != 1 {
				t.Errorf("replaced %d times, %d watches", n, one.reflector.Status().Watches)
			}
		})
	}
}

// What a comparison failed with does not excuse a watch.
func TestRefusedComparisonExcusesNoWatch(t *testing.T) {
	t.Parallel()
	busy := apierrors.NewTooManyRequests("busy", 1)
	if !isProofRefused(busy) || isProofRefused(errors.Join(freshness.ErrNotProven, busy)) ||
		isProofRefused(freshness.ErrNotProven) {
		t.Error("only a refused question says nothing of the watch")
	}
}
