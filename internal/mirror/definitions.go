package mirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/upstream/discovery"
)

const (
	// definitionSettleTime is how long a resource passes through after its definition has changed.
	// Upstream takes down what it served by the old one a second later, and only then do all answers
	// follow the new one; should it take longer, it ends our watch at that moment, before its time,
	// and the state is read again (see newMirror).
	definitionSettleTime = 2 * time.Second
	// definitionDeletionTimeout is how long upstream is given to tell of the deletion of every object
	// whose definition is gone, and streamEndDelay how long streams then have until they end, as
	// upstream's own do (W-116).
	definitionDeletionTimeout = 3 * time.Second
	streamEndDelay            = time.Second
	// followRetryInterval is how often it is tried again to follow what upstream did not let us
	// follow.
	followRetryInterval = 5 * time.Minute
)

// followDefinitions keeps the mirrors to what upstream's definitions and API services say, until
// they end.
func (m *Set) followDefinitions() {
	m.active.Go(func() {
		m.follow("apiservices.apiregistration.k8s.io",
			"changes of aggregated APIs are noticed only when requests fail",
			func() error { return discovery.FollowServices(m.ctx, m.client, m.log, m.delegated) })
	})
	if !m.mayBeCustom() {
		return
	}
	m.active.Go(func() {
		m.follow("customresourcedefinitions.apiextensions.k8s.io", "upstream's OpenAPI is read instead every "+
			epochCheck.String(),
			func() error {
				err := discovery.FollowDefinitions(m.ctx, m.client, m.log, m.redefined)
				m.blind.Store(true)
				return err
			})
	})
}

// mayBeCustom reports that a mirror may be of a custom resource, now or when one that is missing is
// there.
func (m *Set) mayBeCustom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o.OnDemand || len(m.mu.missing) > 0 ||
		slices.ContainsFunc(*m.named.Load(), func(info *object.Resource) bool { return !info.Builtin })
}

// follow runs a follower until the mirrors end. What it may not follow is said once.
func (m *Set) follow(what, instead string, run func() error) {
	for said := false; ; said = true {
		err := run()
		if m.ctx.Err() != nil {
			return
		}
		if !said {
			m.log.Warn("cannot watch "+what+": "+instead, zap.Error(err))
		}
		if !m.pause(followRetryInterval) {
			return
		}
	}
}

// pause reports false if the mirrors end first.
func (m *Set) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-m.ctx.Done():
		return false
	}
}

// redefined takes the epoch of a definition, "" if it serves nothing any more. Mirrors of another
// epoch end, as upstream's own watches do. Their resources pass through until upstream is done;
// then named ones are mirrored anew at once, the others when a client requests them.
func (m *Set) redefined(gr schema.GroupResource, epoch string) {
	m.blind.Store(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.mu.definitions[gr]
	d.epoch, d.heard = epoch, true
	m.mu.definitions[gr] = d
	end := (*mirror).end
	if epoch == "" {
		end = m.part
	}
	m.renew(func(gvr schema.GroupVersionResource, info *object.Resource) bool {
		return gvr.GroupResource() == gr && (info == nil || !info.Builtin && info.Definition != epoch)
	}, "its definition has changed", end)
	if epoch != "" {
		m.restore(func(gvr schema.GroupVersionResource) bool { return gvr.GroupResource() == gr })
	}
}

// delegated hears that another server answers for a group and version, or, if service is "",
// kube-apiserver does again.
func (m *Set) delegated(gv schema.GroupVersion, service string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.delegations[gv]++
	concerned := func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv }
	m.renew(func(gvr schema.GroupVersionResource, info *object.Resource) bool {
		return concerned(gvr) && service != ""
	},
		"another server answers for it", (*mirror).end)
	if service == "" {
		for gvr := range m.mu.entries {
			if concerned(gvr) {
				m.update(gvr, func(e *entry) { e.refused = "" })
			}
		}
		m.restore(concerned)
	}
}

// renew forgets what is known of the resources that are concerned, and ends their mirrors. It is
// asked without an Info about what is not known to be mirrored. Callers hold mu.
func (m *Set) renew(concerned func(schema.GroupVersionResource, *object.Resource) bool, why string, end func(*mirror)) {
	maps.DeleteFunc(m.mu.lookUps, func(gvr schema.GroupVersionResource, _ time.Time) bool { return concerned(gvr, nil) })
	for gvr, e := range m.mu.entries {
		if e.offered != nil && concerned(gvr, e.offered) {
			m.update(gvr, func(e *entry) { e.offered = nil })
			m.awaitDefinition(gvr.GroupResource())
		}
	}
	for gvr, one := range *m.running.Load() {
		if !concerned(gvr, one.resource.Info) {
			continue
		}
		m.awaitDefinition(gvr.GroupResource())
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyResourceChanged, Text: why})
		end(one)
	}
}

// awaitDefinition has a resource pass through while upstream's answers may be of its old
// definition. Callers hold mu.
func (m *Set) awaitDefinition(gr schema.GroupResource) {
	d := m.mu.definitions[gr]
	d.settlesUntil = time.Now().Add(definitionSettleTime)
	m.mu.definitions[gr] = d
}

// dismiss notes why a mirror is to end that has been removed: a named one for now, since it is
// restored, another for good. Callers hold mu.
func (m *Set) dismiss(one *mirror, why states.Cause) {
	gvr := one.resource.Info.GVR
	one.ended.Store(true)
	if m.isNamed(gvr) {
		one.state.retry.Reset()
		m.refuse(gvr, one.state, why)
		return
	}
	m.forget(gvr, one.state, why)
}

// part ends a mirror whose resource is gone. Upstream deletes every object before, but may send
// these events after that of the definition: watches get them all the same (W-116).
func (m *Set) part(one *mirror) {
	m.active.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, definitionDeletionTimeout)
		defer cancel()
		one.awaitEmpty(ctx)
		m.pause(streamEndDelay)
		one.end()
	})
}

// outdated reports that a resource is not to be mirrored as info says, at least not yet. Callers
// hold mu.
func (m *Set) outdated(info *object.Resource) bool {
	d := m.mu.definitions[info.GVR.GroupResource()]
	return time.Now().Before(d.settlesUntil) || d.heard && info.Definition != "" && info.Definition != d.epoch
}
