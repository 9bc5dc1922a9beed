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
func (s *Set) followDefinitions() {
	s.active.Go(func() {
		s.follow("apiservices.apiregistration.k8s.io",
			"changes of aggregated APIs are noticed only when requests fail",
			func() error { return discovery.FollowServices(s.ctx, s.client, s.log, s.delegated) })
	})
	if !s.mayBeCustom() {
		return
	}
	s.active.Go(func() {
		s.follow("customresourcedefinitions.apiextensions.k8s.io", "upstream's OpenAPI is read instead every "+
			epochCheck.String(),
			func() error {
				err := discovery.FollowDefinitions(s.ctx, s.client, s.log, s.redefined)
				s.blind.Store(true)
				return err
			})
	})
}

// mayBeCustom reports that a mirror may be of a custom resource, now or when one that is missing is
// there.
func (s *Set) mayBeCustom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.OnDemand || len(s.mu.missing) > 0 ||
		slices.ContainsFunc(*s.named.Load(), func(info *object.Resource) bool { return !info.Builtin })
}

// follow runs a follower until the mirrors end. What it may not follow is said once.
func (s *Set) follow(what, instead string, run func() error) {
	for said := false; ; said = true {
		err := run()
		if s.ctx.Err() != nil {
			return
		}
		if !said {
			s.log.Warn("cannot watch "+what+": "+instead, zap.Error(err))
		}
		if !s.pause(followRetryInterval) {
			return
		}
	}
}

// pause reports false if the mirrors end first.
func (s *Set) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// redefined takes the epoch of a definition, "" if it serves nothing any more. Mirrors of another
// epoch end, as upstream's own watches do. Their resources pass through until upstream is done;
// then named ones are mirrored anew at once, the others when a client requests them.
func (s *Set) redefined(gr schema.GroupResource, epoch string) {
	s.blind.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.mu.definitions[gr]
	d.epoch, d.heard = epoch, true
	s.mu.definitions[gr] = d
	end := (*mirror).end
	if epoch == "" {
		end = s.part
	}
	s.renew(func(gvr schema.GroupVersionResource, info *object.Resource) bool {
		return gvr.GroupResource() == gr && (info == nil || !info.Builtin && info.Definition != epoch)
	}, "its definition has changed", end)
	if epoch != "" {
		s.restore(func(gvr schema.GroupVersionResource) bool { return gvr.GroupResource() == gr })
	}
}

// delegated hears that another server answers for a group and version, or, if service is "",
// kube-apiserver does again.
func (s *Set) delegated(gv schema.GroupVersion, service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.delegations[gv]++
	concerned := func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv }
	s.renew(func(gvr schema.GroupVersionResource, info *object.Resource) bool {
		return concerned(gvr) && service != ""
	},
		"another server answers for it", (*mirror).end)
	if service == "" {
		for gvr := range s.mu.entries {
			if concerned(gvr) {
				s.update(gvr, func(e *entry) { e.refused = "" })
			}
		}
		s.restore(concerned)
	}
}

// renew forgets what is known of the resources that are concerned, and ends their mirrors. It is
// asked without an Info about what is not known to be mirrored. Callers hold mu.
func (s *Set) renew(concerned func(schema.GroupVersionResource, *object.Resource) bool, why string, end func(*mirror)) {
	maps.DeleteFunc(s.mu.lookUps, func(gvr schema.GroupVersionResource, _ time.Time) bool { return concerned(gvr, nil) })
	for gvr, e := range s.mu.entries {
		if e.offered != nil && concerned(gvr, e.offered) {
			s.update(gvr, func(e *entry) { e.offered = nil })
			s.awaitDefinition(gvr.GroupResource())
		}
	}
	for gvr, m := range *s.running.Load() {
		if !concerned(gvr, m.resource.Info) {
			continue
		}
		s.awaitDefinition(gvr.GroupResource())
		s.remove(m)
		s.dismiss(m, states.Cause{Why: states.WhyResourceChanged, Text: why})
		end(m)
	}
}

// awaitDefinition has a resource pass through while upstream's answers may be of its old
// definition. Callers hold mu.
func (s *Set) awaitDefinition(gr schema.GroupResource) {
	d := s.mu.definitions[gr]
	d.settlesUntil = time.Now().Add(definitionSettleTime)
	s.mu.definitions[gr] = d
}

// dismiss notes why a mirror is to end that has been removed: a named one for now, since it is
// restored, another for good. Callers hold mu.
func (s *Set) dismiss(m *mirror, why states.Cause) {
	gvr := m.resource.Info.GVR
	m.ended.Store(true)
	if s.isNamed(gvr) {
		m.state.retry.Reset()
		s.refuse(gvr, m.state, why)
		return
	}
	s.forget(gvr, m.state, why)
}

// part ends a mirror whose resource is gone. Upstream deletes every object before, but may send
// these events after that of the definition: watches get them all the same (W-116).
func (s *Set) part(m *mirror) {
	s.active.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, definitionDeletionTimeout)
		defer cancel()
		m.awaitEmpty(ctx)
		s.pause(streamEndDelay)
		m.end()
	})
}

// outdated reports that a resource is not to be mirrored as info says, at least not yet. Callers
// hold mu.
func (s *Set) outdated(info *object.Resource) bool {
	d := s.mu.definitions[info.GVR.GroupResource()]
	return time.Now().Before(d.settlesUntil) || d.heard && info.Definition != "" && info.Definition != d.epoch
}
