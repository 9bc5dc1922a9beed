package fakeapiserver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Create stores a new object and returns its resourceVersion, or 0 if there is one of that name.
func (s *Server) Create(gvr schema.GroupVersionResource, namespace, name string, edits ...Edit) uint64 {
	m := map[string]any{}
	for _, edit := range edits {
		edit(m)
	}
	meta := metadata(m)
	meta["name"] = name
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	if t.kind.Namespaced {
		meta["namespace"] = namespace
	}
	o, err := s.createLocked(t, m)
	return revisionOf(o, err)
}

// Update changes an object and returns its new resourceVersion: the old one if the edits change
// nothing, 0 if there is no such object.
func (s *Server) Update(gvr schema.GroupVersionResource, namespace, name string, edits ...Edit) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	old, ok := t.objects.Get(t.kind.key(namespace, name))
	if !ok {
		return 0
	}
	m := old.tree()
	for _, edit := range edits {
		edit(m)
	}
	o, err := s.updateLocked(t, old, m)
	return revisionOf(o, err)
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
	o, err := s.deleteLocked(t, old)
	return revisionOf(o, err)
}

// revisionOf turns "exists already" and its like into 0; an object that cannot be encoded is a
// mistake in the test.
func revisionOf(o *Obj, err error) uint64 {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return o.RV
	case errors.As(err, &status):
		return 0
	}
	panic(fmt.Sprintf("BUG: object cannot be stored: %v", err))
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
	return listOf(s.table(gvr).objects)
}

// ListAt returns the truth at a past revision, and whether storage still knows it.
func (s *Server) ListAt(gvr schema.GroupVersionResource, rv uint64) ([]Obj, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(gvr)
	if rv > s.rev || rv < max(s.compacted, t.oldest) {
		return nil, false
	}
	return listOf(t.view(t.after(rv))), true
}

func listOf(state *objects) []Obj {
	list := make([]Obj, 0, state.Len())
	state.Scan(func(_ string, o *Obj) bool {
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

// createLocked stores m, filling in what an apiserver fills in.
func (s *Server) createLocked(t *table, m map[string]any) (*Obj, error) {
	meta := metadata(m)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	if _, exists := t.objects.Get(t.kind.key(namespace, name)); exists {
		return nil, apierrors.NewAlreadyExists(t.kind.GVR.GroupResource(), name)
	}
	uid, err := uuid.NewRandomFromReader(s.random)
	if err != nil {
		return nil, err
	}
	meta["uid"] = uid.String()
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	delete(meta, "deletionTimestamp")
	if t.kind.generations() {
		meta["generation"] = int64(1)
	}
	o, err := t.kind.object(m, s.rev+1)
	if err != nil {
		return nil, err
	}
	s.commitLocked(t, &change{RV: o.RV, New: o})
	return o, nil
}

// updateLocked replaces old by m. The identity of an object cannot be changed by an update.
func (s *Server) updateLocked(t *table, old *Obj, m map[string]any) (*Obj, error) {
	before := old.tree()
	meta, was := metadata(m), metadata(before)
	for _, fixed := range []string{"name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp"} {
		if v, ok := was[fixed]; ok {
			meta[fixed] = v
		} else {
			delete(meta, fixed)
		}
	}
	if generation, ok := was["generation"].(int64); ok && t.kind.generations() && !sameSpec(before, m) {
		meta["generation"] = generation + 1
	}
	o, err := t.kind.object(m, s.rev+1)
	if err != nil {
		return nil, err
	}
	if equalBut(old.Raw, o.Raw) {
		return old, nil
	}
	if _, deleting := meta["deletionTimestamp"]; deleting && len(finalizers(m)) == 0 {
		return s.removeLocked(t, o, old)
	}
	s.commitLocked(t, &change{RV: o.RV, New: o, Old: old})
	return o, nil
}

// deleteLocked removes an object, or marks it if it has finalizers.
func (s *Server) deleteLocked(t *table, old *Obj) (*Obj, error) {
	m := old.tree()
	if len(finalizers(m)) == 0 {
		return s.removeLocked(t, old, old)
	}
	meta := metadata(m)
	if _, marked := meta["deletionTimestamp"]; marked {
		return old, nil
	}
	meta["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta["deletionGracePeriodSeconds"] = int64(0)
	o, err := t.kind.object(m, s.rev+1)
	if err != nil {
		return nil, err
	}
	s.commitLocked(t, &change{RV: o.RV, New: o, Old: old})
	return o, nil
}

// removeLocked takes old out of storage. The answer shows the object as the caller left it.
func (s *Server) removeLocked(t *table, shown, old *Obj) (*Obj, error) {
	c := &change{RV: s.rev + 1, Old: old}
	s.commitLocked(t, c)
	return t.kind.at(shown, c.RV), nil
}

func finalizers(m map[string]any) []any {
	list, _ := metadata(m)["finalizers"].([]any)
	return list
}

// generations reports whether metadata.generation counts changes of spec.
func (r *Resource) generations() bool { return r.Custom || r.GVR == Deployments }

func sameSpec(a, b map[string]any) bool { return fmt.Sprint(a["spec"]) == fmt.Sprint(b["spec"]) }

// generatedLocked completes metadata.generateName.
func (s *Server) generatedLocked(prefix string) string {
	var b [3]byte
	_, _ = s.random.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])[:5]
}

// checkIdentity refuses a write whose preconditions do not hold: 409, as upstream.
func checkIdentity(t *table, o *Obj, rv string, uid types.UID) error {
	group := t.kind.GVR.GroupResource()
	if uid != "" && string(uid) != o.UID {
		return apierrors.NewConflict(group, o.Name,
			fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, o.UID))
	}
	if rv != "" && rv != "0" && rv != formatRV(o.RV) {
		return apierrors.NewConflict(group, o.Name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}
