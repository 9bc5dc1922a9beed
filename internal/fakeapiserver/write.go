package fakeapiserver

import (
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Create stores a new object, filling in what an API server fills in, and returns its
// resourceVersion, or 0 if there is one of that name.
func (s *Server) Create(gvr schema.GroupVersionResource, namespace, name string, edits ...Edit) uint64 {
	m := map[string]any{}
	for _, edit := range edits {
		edit(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	if _, exists := t.objects.Get(t.kind.key(namespace, name)); exists {
		return 0
	}
	meta := metadata(m)
	meta["name"] = name
	if t.kind.Namespaced {
		meta["namespace"] = namespace
	}
	meta["uid"] = uuid.NewString()
	meta["creationTimestamp"] = now()
	if t.kind.countsGenerations() {
		meta["generation"] = int64(1)
	}
	return s.storeLocked(t, nil, m)
}

// Update changes an object and returns its new resourceVersion: the old one if the edits change
// nothing, 0 if there is no such object. They cannot change its identity. With its last finalizer
// an object that is marked as deleted is removed (W-104).
func (s *Server) Update(gvr schema.GroupVersionResource, namespace, name string, edits ...Edit) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	old, ok := t.objects.Get(t.kind.key(namespace, name))
	if !ok {
		return 0
	}
	before, m := old.tree(), old.tree()
	for _, edit := range edits {
		edit(m)
	}
	meta, metaBefore := metadata(m), metadata(before)
	for _, fixed := range []string{"name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp"} {
		if v, ok := metaBefore[fixed]; ok {
			meta[fixed] = v
		} else {
			delete(meta, fixed)
		}
	}
	generation, ok := metaBefore["generation"].(int64)
	if ok && t.kind.countsGenerations() && !hasEqualSpec(before, m) {
		meta["generation"] = generation + 1
	}
	if _, deleting := meta["deletionTimestamp"]; deleting && !hasFinalizers(m) {
		return s.removeLocked(t, old)
	}
	return s.storeLocked(t, old, m)
}

// Delete removes an object and returns the revision of that; with finalizers it only marks the
// object (W-104). 0: there is none.
func (s *Server) Delete(gvr schema.GroupVersionResource, namespace, name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	old, ok := t.objects.Get(t.kind.key(namespace, name))
	if !ok {
		return 0
	}
	m := old.tree()
	if !hasFinalizers(m) {
		return s.removeLocked(t, old)
	}
	if meta := metadata(m); meta["deletionTimestamp"] == nil {
		meta["deletionTimestamp"] = now()
		meta["deletionGracePeriodSeconds"] = int64(0)
	}
	return s.storeLocked(t, old, m)
}

// storeLocked stores what m describes in place of old, nil for a new object, and returns its
// resourceVersion. A write that changes nothing stores nothing, as upstream.
func (s *Server) storeLocked(t *table, old *Obj, m map[string]any) uint64 {
	o, err := t.kind.object(m, s.rev+1)
	if err != nil {
		panic(fmt.Sprintf("BUG: object cannot be stored: %v", err))
	}
	if old != nil && equalButRV(old, o) {
		return old.RV
	}
	s.commitLocked(t, &change{RV: o.RV, New: o, Old: old})
	return o.RV
}

func (s *Server) removeLocked(t *table, old *Obj) uint64 {
	s.commitLocked(t, &change{RV: s.rev + 1, Old: old})
	return s.rev
}

// Get returns an object as it is in storage now.
func (s *Server) Get(gvr schema.GroupVersionResource, namespace, name string) (Obj, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	o, ok := t.objects.Get(t.kind.key(namespace, name))
	if !ok {
		return Obj{}, false
	}
	return *o, true
}

// List returns the truth: all objects in storage, in the order of their keys.
func (s *Server) List(gvr schema.GroupVersionResource) []Obj {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	list := make([]Obj, 0, t.objects.Len())
	t.objects.Scan(func(_ string, o *Obj) bool {
		list = append(list, *o)
		return true
	})
	return list
}

// Revision is the revision of the last write to any resource.
func (s *Server) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rev
}

// Bump raises the revision as a write to a resource does that this server does not serve, and
// returns it.
func (s *Server) Bump() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rev++
	s.changedLocked()
	return s.rev
}

// now is the time as objects have it.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

func hasFinalizers(m map[string]any) bool {
	list, _ := metadata(m)["finalizers"].([]any)
	return len(list) > 0
}

// countsGenerations reports that metadata.generation counts changes of spec.
func (r *Resource) countsGenerations() bool { return r.Custom || r.GVR == Deployments }

func hasEqualSpec(a, b map[string]any) bool { return reflect.DeepEqual(a["spec"], b["spec"]) }
