package mirror

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/source"
	"spillway/internal/upstream/discovery"
)

// lookupInterval is the shortest interval between two look-ups of a resource that upstream did not
// serve. A CRD may appear at any time.
const lookupInterval = 5 * time.Second

// Find implements source.Catalog.
func (s *Set) Find(gvr schema.GroupVersionResource) *source.Source {
	if found := (*s.running.Load())[gvr]; found != nil {
		return found.usable()
	}
	if !s.o.OnDemand && !s.isNamed(gvr) {
		return nil
	}
	if info := s.offer(gvr); info != nil {
		if started := s.start(info); started != nil {
			return started.usable()
		}
	}
	return nil
}

// Knows implements source.Catalog.
func (s *Set) Knows(gvr schema.GroupVersionResource) bool {
	if (*s.running.Load())[gvr] != nil || s.isNamed(gvr) {
		return true
	}
	if !s.o.OnDemand {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.entries[gvr].refused == ""
}

// Soon implements source.Catalog: what runs and is not refused gets a state, or its representation
// again.
func (s *Set) Soon(gvr schema.GroupVersionResource) bool {
	found := (*s.running.Load())[gvr]
	return found != nil && found.state.State().Kind() != states.KindRefused && found.usable() == nil
}

func (s *Set) isNamed(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(*s.named.Load(), func(info *object.Resource) bool { return info.GVR == gvr })
}

// offer is what is known of a resource that may be mirrored. What is not known is looked up for the
// next request.
func (s *Set) offer(gvr schema.GroupVersionResource) *object.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.mu.entries[gvr]
	if known.state != nil && known.state.waiting() {
		return nil
	}
	if known.offered != nil {
		return known.offered
	}
	if known.refused != "" || time.Since(s.mu.lookUps[gvr]) < lookupInterval || s.ctx.Err() != nil ||
		time.Now().Before(s.mu.definitions[gvr.GroupResource()].settlesUntil) {
		return nil
	}
	if len(s.mu.lookUps) > 4*s.o.MaxOnDemand {
		clear(s.mu.lookUps)
	}
	s.mu.lookUps[gvr] = time.Now()
	s.active.Go(func() { _, _ = s.look(gvr) }) // what it finds is found in offered
	return nil
}

// errDelegated says that what upstream said of a resource may be out of date.
var errDelegated = errors.New("another server answers since it was discovered")

// look asks upstream about a resource, and remembers what it says, unless it was heard meanwhile
// that another server answers.
func (s *Set) look(gvr schema.GroupVersionResource) (*object.Resource, error) {
	s.mu.Lock()
	heard := s.mu.delegations[gvr.GroupVersion()]
	s.mu.Unlock()
	info, err := discovery.ReadResource(s.ctx, s.client, gvr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.delegations[gvr.GroupVersion()] != heard {
		return nil, errDelegated // the next request has it looked up again
	}
	var refusal *discovery.NotMirroredError
	switch {
	case errors.As(err, &refusal):
		s.update(gvr, func(e *entry) { e.refused = refusal.Reason })
	case err == nil:
		s.update(gvr, func(e *entry) { e.offered = info })
	}
	return info, err
}
