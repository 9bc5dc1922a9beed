package mirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/upstream/discovery"
)

const (
	// definitionSettleTime is how long a resource passes through after its definition has changed.
	// Upstream ends what it served by the old definition a second later, and only then do all answers
	// follow the new one. If that takes longer, upstream ends our watch at that moment, and the state
	// is read again (OnEarlyEnd).
	definitionSettleTime = 2 * time.Second
	// definitionDeletionTimeout is how long upstream may take to send the deletions of the objects
	// whose definition is gone.
	definitionDeletionTimeout = 3 * time.Second
	// streamEndDelay is how long streams then have until they end, as upstream's own do (W-116).
	streamEndDelay = time.Second
	// followRetryInterval is how often following is tried again where upstream has denied it.
	followRetryInterval = 5 * time.Minute
)

// followDefinitions keeps the mirrors to what upstream's definitions and API services say, until
// they end.
func (s *Set) followDefinitions() {
	s.active.Go(func() {
		s.follow("apiservices.apiregistration.k8s.io",
			"changes of aggregated APIs are noticed only when requests fail",
			func() error { return discovery.FollowServices(s.ctx, s.client, s.log, s.applyDelegation) })
	})
	if !s.mayMirrorCustom() {
		return
	}
	s.active.Go(func() {
		s.follow("customresourcedefinitions.apiextensions.k8s.io",
			"upstream's OpenAPI is read instead every "+epochCheckInterval.String(),
			func() error {
				err := discovery.FollowDefinitions(s.ctx, s.client, s.log, s.applyDefinition)
				s.definitionsHidden.Store(true)
				return err
			})
	})
}

// mayMirrorCustom reports that a custom resource may be mirrored, now or once a missing one is
// there.
func (s *Set) mayMirrorCustom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.OnDemand || len(s.mu.missing) > 0 ||
		slices.ContainsFunc(*s.named.Load(), func(info *object.Resource) bool { return !info.Builtin })
}

// follow runs a follower until the mirrors end. The log says once what cannot be followed, and what
// happens instead.
func (s *Set) follow(what, instead string, run func() error) {
	for isLogged := false; ; isLogged = true {
		err := run()
		if s.ctx.Err() != nil {
			return
		}
		if !isLogged {
			level := zap.WarnLevel
			if s.o.IsClient && apierrors.IsForbidden(err) {
				level = zap.InfoLevel
			}
			s.log.Log(level, "cannot watch "+what+": "+instead, zap.Error(err))
		}
		if !s.pause(followRetryInterval) {
			return
		}
	}
}

// apiChange is a change of what upstream serves, or of how it shows it.
type apiChange struct {
	matches  func(schema.GroupVersionResource) bool // resources that the change may concern
	outdates func(*object.Resource) bool            // reports what of these is known in the former way
	reason   string
}

// applyDefinition takes the epoch of a definition, "" if it serves nothing any more. Mirrors of
// another epoch end, as upstream's own watches do. Their resources pass through until upstream has
// settled. Named ones are then mirrored again at once, others when a client requests them.
func (s *Set) applyDefinition(gr schema.GroupResource, epoch string) {
	s.definitionsHidden.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.mu.definitions[gr]
	d.epoch, d.known = epoch, true
	s.mu.definitions[gr] = d
	c := apiChange{
		matches:  func(gvr schema.GroupVersionResource) bool { return gvr.GroupResource() == gr },
		outdates: func(info *object.Resource) bool { return !info.Builtin && info.Definition != epoch },
		reason:   "its definition has changed",
	}
	if epoch == "" {
		s.endOutdatedLocked(c, s.endOnceEmpty)
		return
	}
	s.endOutdatedLocked(c, (*mirror).end)
	s.retryNamedLocked(c.matches)
}

// applyDelegation notes that another server answers for a group and version, or, if service is "",
// kube-apiserver does again.
func (s *Set) applyDelegation(gv schema.GroupVersion, service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.delegations[gv]++
	matches := func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv }
	if service != "" {
		s.endOutdatedLocked(apiChange{
			matches:  matches,
			outdates: func(*object.Resource) bool { return true },
			reason:   "another server answers for it",
		}, (*mirror).end)
		return
	}
	for gvr := range s.mu.entries {
		if matches(gvr) {
			s.updateLocked(gvr, func(e *entry) { e.refused = "" })
		}
	}
	s.retryNamedLocked(matches)
}

// applySchemaChange notes that the schemas of a group and version have changed. It is for resources
// without a definition here, so any of them may be concerned.
func (s *Set) applySchemaChange(gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := apiChange{
		matches:  func(gvr schema.GroupVersionResource) bool { return gvr.GroupVersion() == gv },
		outdates: func(info *object.Resource) bool { return !info.Builtin && info.Definition == "" },
		reason:   "its schema has changed",
	}
	s.endOutdatedLocked(c, (*mirror).end)
	s.retryNamedLocked(c.matches)
}

// endOutdatedLocked forgets what a change has outdated, and ends its mirrors. Requests for these
// resources pass through for definitionSettleTime.
func (s *Set) endOutdatedLocked(c apiChange, end func(*mirror)) {
	maps.DeleteFunc(s.mu.lookUps, func(gvr schema.GroupVersionResource, _ time.Time) bool { return c.matches(gvr) })
	for gvr, e := range s.mu.entries {
		if c.matches(gvr) && e.offered != nil && c.outdates(e.offered) {
			s.updateLocked(gvr, func(e *entry) { e.offered = nil })
			s.awaitSettledLocked(gvr.GroupResource())
		}
	}
	for gvr, m := range *s.running.Load() {
		if c.matches(gvr) && c.outdates(m.resource.Info) {
			s.awaitSettledLocked(gvr.GroupResource())
			s.detachLocked(m, states.Cause{Why: states.WhyResourceChanged, Text: c.reason})
			end(m)
		}
	}
}

// awaitSettledLocked lets requests for a resource pass through for definitionSettleTime, because
// upstream may still answer by its old definition. It does not wait itself.
func (s *Set) awaitSettledLocked(gr schema.GroupResource) {
	d := s.mu.definitions[gr]
	d.settlesUntil = time.Now().Add(definitionSettleTime)
	s.mu.definitions[gr] = d
}

// isOutdatedLocked reports that a resource is not to be mirrored as info says, at least not yet.
func (s *Set) isOutdatedLocked(info *object.Resource) bool {
	d := s.mu.definitions[info.GVR.GroupResource()]
	return time.Now().Before(d.settlesUntil) || d.known && info.Definition != "" && info.Definition != d.epoch
}

// endOnceEmpty ends a mirror whose resource is gone. Upstream deletes the objects first, but may
// send the deletions after that of the definition: watches receive them all the same (W-116).
func (s *Set) endOnceEmpty(m *mirror) {
	s.active.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, definitionDeletionTimeout)
		defer cancel()
		m.awaitEmpty(ctx)
		s.pause(streamEndDelay)
		m.end()
	})
}
