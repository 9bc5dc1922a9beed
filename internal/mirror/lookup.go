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
func (m *Set) Find(gvr schema.GroupVersionResource) *source.Source {
	if found := (*m.running.Load())[gvr]; found != nil {
		return found.usable()
	}
	if !m.o.OnDemand && !m.isNamed(gvr) {
		return nil
	}
	if info := m.offer(gvr); info != nil {
		if started := m.start(info); started != nil {
			return started.usable()
		}
	}
	return nil
}

// Knows implements source.Catalog.
func (m *Set) Knows(gvr schema.GroupVersionResource) bool {
	if (*m.running.Load())[gvr] != nil || m.isNamed(gvr) {
		return true
	}
	if !m.o.OnDemand {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.entries[gvr].refused == ""
}

// Soon implements source.Catalog: what runs and is not refused gets a state, or its representation
// again.
func (m *Set) Soon(gvr schema.GroupVersionResource) bool {
	found := (*m.running.Load())[gvr]
	return found != nil && found.state.State().Kind() != states.KindRefused && found.usable() == nil
}

func (m *Set) isNamed(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(*m.named.Load(), func(info *object.Resource) bool { return info.GVR == gvr })
}

// offer is what is known of a resource that may be mirrored. What is not known is looked up for the
// next request.
func (m *Set) offer(gvr schema.GroupVersionResource) *object.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.mu.entries[gvr]
	if known.state != nil && known.state.waiting() {
		return nil
	}
	if known.offered != nil {
		return known.offered
	}
	if known.refused != "" || time.Since(m.mu.lookUps[gvr]) < lookupInterval || m.ctx.Err() != nil ||
		time.Now().Before(m.mu.definitions[gvr.GroupResource()].settlesUntil) {
		return nil
	}
	if len(m.mu.lookUps) > 4*m.o.MaxOnDemand {
		clear(m.mu.lookUps)
	}
	m.mu.lookUps[gvr] = time.Now()
	m.active.Go(func() { _, _ = m.look(gvr) }) // what it finds is found in offered
	return nil
}

// errDelegated says that what upstream said of a resource may be out of date.
var errDelegated = errors.New("another server answers since it was discovered")

// look asks upstream about a resource, and remembers what it says, unless it was heard meanwhile
// that another server answers.
func (m *Set) look(gvr schema.GroupVersionResource) (*object.Resource, error) {
	m.mu.Lock()
	heard := m.mu.delegations[gvr.GroupVersion()]
	m.mu.Unlock()
	info, err := discovery.ReadResource(m.ctx, m.client, gvr)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.delegations[gvr.GroupVersion()] != heard {
		return nil, errDelegated // the next request has it looked up again
	}
	var refusal *discovery.NotMirroredError
	switch {
	case errors.As(err, &refusal):
		m.update(gvr, func(e *entry) { e.refused = refusal.Reason })
	case err == nil:
		m.update(gvr, func(e *entry) { e.offered = info })
	}
	return info, err
}
