package mirror

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
)

// refuse notes that a resource is not mirrored for a cause, and when that is tried again. One that
// upstream does not serve any more, and no setting names, is forgotten. Callers hold mu.
func (s *Set) refuse(gvr schema.GroupVersionResource, state *mirrorState, cause states.Cause) {
	if cause.Why == states.WhyNotServed && !s.isNamed(gvr) {
		s.mu.lookUps[gvr] = time.Now()
		s.forget(gvr, state, cause)
		return
	}
	due := state.next(cause.Why)
	state.Lose(cause, due)
	if s.isNamed(gvr) {
		s.active.Go(func() { s.retry(gvr, state, due) })
	}
}

// forget ends the state of a resource. Callers hold mu.
func (s *Set) forget(gvr schema.GroupVersionResource, state *mirrorState, cause states.Cause) {
	state.GiveUp(cause)
	s.update(gvr, func(e *entry) { e.state = nil })
}

// retry mirrors a named resource again, once upstream says what it is now. It ends when due is not
// when the state is tried again any more: something else has it tried sooner, or it is mirrored.
func (s *Set) retry(gvr schema.GroupVersionResource, state *mirrorState, due time.Time) {
	for s.pause(time.Until(due)) {
		s.mu.Lock()
		known := s.mu.entries[gvr]
		current, info := state.due.Equal(due) && known.state == state, known.offered
		s.mu.Unlock()
		if !current {
			return
		}
		var err error
		if info == nil {
			info, err = s.look(gvr)
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
			cause = lastAnswer(cause, causeOf(err))
		}
		due = state.next(cause.Why)
		state.Lose(cause, due)
		s.mu.Unlock()
	}
}

// restore has the named resources that are concerned mirrored again, if they are not. Callers hold
// mu.
func (s *Set) restore(concerned func(schema.GroupVersionResource) bool) {
	select {
	case s.sought <- struct{}{}: // one that is missing may be there by now
	default:
	}
	running := *s.running.Load()
	for _, info := range *s.named.Load() {
		state := s.mu.entries[info.GVR].state
		if running[info.GVR] != nil || state == nil || !concerned(info.GVR) {
			continue
		}
		state.retry.Reset()
		due := time.Now().Add(definitionSettleTime)
		state.due = due
		state.Lose(state.State().Cause(), due)
		s.active.Go(func() { s.retry(info.GVR, state, due) })
	}
}
