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

const (
	// lookUpInterval is the shortest interval between two look-ups of a resource that upstream did not
	// serve. A CRD may appear at any time.
	lookUpInterval = 5 * time.Second
	// lookUpsPerMirror bounds the look-ups that are remembered, as a multiple of MaxOnDemand.
	lookUpsPerMirror = 4
)

// Find implements source.Catalog.
func (s *Set) Find(gvr schema.GroupVersionResource) *source.Source {
	if found := (*s.running.Load())[gvr]; found != nil {
		return found.usableSource()
	}
	if !s.o.OnDemand && !s.isNamed(gvr) {
		return nil
	}
	if info := s.offeredOrLookUp(gvr); info != nil {
		if started := s.start(info); started != nil {
			return started.usableSource()
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

// Soon implements source.Catalog: a mirror that runs and is not refused is about to have a state,
// or its representation again.
func (s *Set) Soon(gvr schema.GroupVersionResource) bool {
	found := (*s.running.Load())[gvr]
	return found != nil && found.state.State().Kind() != states.KindRefused && found.usableSource() == nil
}

func (s *Set) isNamed(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(*s.named.Load(), func(info *object.Resource) bool { return info.GVR == gvr })
}

// offeredOrLookUp returns a resource that may be mirrored now; nil: it may not. It begins to look
// up an unknown one, for the next request.
func (s *Set) offeredOrLookUp(gvr schema.GroupVersionResource) *object.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.mu.entries[gvr]
	if known.state != nil && known.state.isWaiting() {
		return nil
	}
	if known.offered != nil {
		return known.offered
	}
	isRecent := time.Since(s.mu.lookUps[gvr]) < lookUpInterval
	isSettling := time.Now().Before(s.mu.definitions[gvr.GroupResource()].settlesUntil)
	if known.refused != "" || isRecent || isSettling || s.ctx.Err() != nil {
		return nil
	}
	if len(s.mu.lookUps) > lookUpsPerMirror*s.o.MaxOnDemand {
		clear(s.mu.lookUps)
	}
	s.mu.lookUps[gvr] = time.Now()
	s.active.Go(func() { _, _ = s.lookUp(gvr) }) // the next request finds the result
	return nil
}

// errDelegated says that what upstream said of a resource may be out of date.
var errDelegated = errors.New("another server answers since it was discovered")

// lookUp reads from upstream what a resource is, and notes it, unless the server that answers has
// changed meanwhile.
func (s *Set) lookUp(gvr schema.GroupVersionResource) (*object.Resource, error) {
	s.mu.Lock()
	before := s.mu.delegations[gvr.GroupVersion()]
	s.mu.Unlock()
	info, err := discovery.ReadResource(s.ctx, s.client, gvr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.delegations[gvr.GroupVersion()] != before {
		return nil, errDelegated // the next request has it looked up again
	}
	var refusal *discovery.NotMirroredError
	switch {
	case errors.As(err, &refusal):
		s.updateLocked(gvr, func(e *entry) { e.refused = refusal.Reason })
	case err == nil:
		s.updateLocked(gvr, func(e *entry) { e.offered = info })
	}
	return info, err
}
