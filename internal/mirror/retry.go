package mirror

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
)

// lose ends a mirror that upstream does not serve at present, or not to the proxy: its requests
// pass through, and its watches end so that clients start again. A named resource is tried again
// after a pause, another one when a client requests it.
func (s *Set) lose(m *mirror, failure error) {
	info := m.resource.Info
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.removeLocked(m) {
		return
	}
	offered := info
	if !info.Builtin || apierrors.IsNotFound(failure) {
		offered = nil // it may be another one by then
	}
	s.updateLocked(info.GVR, func(e *entry) { e.offered = offered })
	m.end()
	cause := causeOf(s.client.ExplainUnauthorized(failure))
	if apierrors.IsForbidden(failure) {
		cause.Text += missingRole(info.GVR.GroupResource())
	}
	s.refuseLocked(info.GVR, m.state, cause)
}

// refuseLocked notes that a resource is not mirrored for a cause, and when it is tried again. One
// that upstream does not serve any more, and no setting names, is forgotten.
func (s *Set) refuseLocked(gvr schema.GroupVersionResource, state *mirrorState, cause states.Cause) {
	if cause.Why == states.WhyNotServed && !s.isNamed(gvr) {
		s.mu.lookUps[gvr] = time.Now()
		s.forgetLocked(gvr, state, cause)
		return
	}
	state.loseUntilRetryLocked(cause)
	if s.isNamed(gvr) {
		s.startRetryLocked(gvr, state)
	}
}

// forgetLocked ends the state of a resource.
func (s *Set) forgetLocked(gvr schema.GroupVersionResource, state *mirrorState, cause states.Cause) {
	state.GiveUp(cause)
	s.updateLocked(gvr, func(e *entry) { e.state = nil })
}

// startRetryLocked has a named resource mirrored again when it is due.
func (s *Set) startRetryLocked(gvr schema.GroupVersionResource, state *mirrorState) {
	due := state.due
	s.active.Go(func() { s.retry(gvr, state, due) })
}

// retry mirrors a named resource again, once upstream says what it is now. It ends once another
// time is due than the one that it waits for: the resource is mirrored, or another retry has begun.
func (s *Set) retry(gvr schema.GroupVersionResource, state *mirrorState, due time.Time) {
	for s.pause(time.Until(due)) {
		s.mu.Lock()
		known := s.mu.entries[gvr]
		isCurrent, info := state.due.Equal(due) && known.state == state, known.offered
		s.mu.Unlock()
		if !isCurrent {
			return
		}
		var err error
		if info == nil {
			info, err = s.lookUp(gvr)
		}
		if err == nil && s.start(info) != nil {
			return
		}
		s.mu.Lock()
		if !state.due.Equal(due) {
			s.mu.Unlock()
			return
		}
		cause := state.State().Cause()
		if err != nil && !errors.Is(err, errDelegated) {
			cause = causeAfter(cause, causeOf(s.client.ExplainUnauthorized(err)))
		}
		state.loseUntilRetryLocked(cause)
		due = state.due
		s.mu.Unlock()
	}
}

// retryNamedLocked has the named resources that match mirrored again once upstream has settled, if
// they are not.
func (s *Set) retryNamedLocked(matches func(schema.GroupVersionResource) bool) {
	s.hintMissing()
	running := *s.running.Load()
	for _, info := range *s.named.Load() {
		state := s.mu.entries[info.GVR].state
		if running[info.GVR] == nil && state != nil && matches(info.GVR) {
			state.retryAtLocked(time.Now().Add(definitionSettleTime))
			s.startRetryLocked(info.GVR, state)
		}
	}
}
