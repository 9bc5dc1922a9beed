package mirror

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/internal/memory"
)

// The last step refuses mirrors on demand and keeps those that have clients; all of it is taken
// back.
func TestShortOfMemory(t *testing.T) {
	up := newUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	m := mirroring(t, up, nil, "*", "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	for step := memory.DropDerived; step <= memory.RefuseAndEvict; step++ {
		m.Degrade(step)
		m.Degrade(step) // as at each look
	}
	if m.Find(fakeapiserver.Pods) != nil || m.names() != "configmaps" {
		t.Errorf("%s are mirrored although memory is short", m.names())
	}
	if m.Find(fakeapiserver.ConfigMaps) == nil {
		t.Error("what is mirrored is given up")
	}
	if n := m.refusedForMemory.Load(); n != 1 {
		t.Errorf("%d requests were turned away", n)
	}
	for step := memory.ShortenHistory; step >= memory.None; step-- {
		m.Degrade(step)
	}
	m.awaitReady(t, fakeapiserver.Pods)
}

// While the first state of a resource on demand is awaited, others wait for theirs; each gives its
// place back.
func TestFirstStatesQueue(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*")
	m.firstStates <- struct{}{} // as if another were on its way
	for _, gvr := range []schema.GroupVersionResource{fakeapiserver.ConfigMaps, fakeapiserver.Pods} {
		if s := m.Find(gvr); s == nil || s.Resource().IsReady() {
			t.Fatalf("%s: %v", gvr.Resource, s)
		}
	}
	for _, one := range m.all() {
		if one.reflector.Status().Replaces != 0 {
			t.Errorf("%s has been listed", one.resource.Info)
		}
	}
	<-m.firstStates
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.awaitReady(t, fakeapiserver.Pods)
	eventually(t, "places to be free", func() bool { return len(m.firstStates) == 0 })
}

// A mirror on demand that has no state yet ends when memory is short, and requests that wait for it
// pass through.
func TestRetreat(t *testing.T) {
	up := newUpstream(t)
	m := mirroring(t, up, func(o *SetOptions) { o.FirstStates = 1 }, "*", "configmaps")
	m.awaitReady(t, fakeapiserver.ConfigMaps)
	m.firstStates <- struct{}{}
	waiting := m.Find(fakeapiserver.Pods)
	m.Degrade(memory.RefuseAndEvict)
	if m.names() != "configmaps" || m.Find(fakeapiserver.Pods) != nil || !waiting.Resource().IsClosed() {
		t.Errorf("mirrors %s; waiting requests pass through: %v", m.names(), waiting.Resource().IsClosed())
	}
}
