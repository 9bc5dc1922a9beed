package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/status"
	"spillway/internal/upstream/discovery"
)

// endMarkWait is how long a watch-list may make no progress before a LIST takes its place. With the
// LIST it is less than 30 s.
const endMarkWait = 10 * time.Second

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

// missingRole is the remedy for a denial: the rule that Spillway's role lacks. The group is the one
// that upstream serves the resource in, which --resources need not name.
func missingRole(r schema.GroupResource) string {
	return fmt.Sprintf("; give Spillway a ClusterRole with apiGroups [%q], resources [%q], verbs [get, list, watch]",
		r.Group, r.Resource)
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

// adopt mirrors the named resources that were found, and keeps in mind those that were not. It
// returns how many are missing.
func (s *Set) adopt(found []discovery.Resolution) int {
	s.mu.Lock()
	named := slices.Clone(*s.named.Load())
	var fresh []*object.Resource
	for _, one := range found {
		state := s.mu.missing[one.Name]
		if one.Err != nil {
			if state == nil {
				state = s.newState(labelsOf(one.Name))
				s.mu.missing[one.Name] = state
			}
			cause := lastAnswer(state.State().Cause(), causeOf(one.Err))
			state.Lose(cause, state.next(cause.Why))
			continue
		}
		info := one.Resource
		delete(s.mu.missing, one.Name) // the mirror has a state of its own, by the resource's full name
		if slices.ContainsFunc(named, func(other *object.Resource) bool { return other.GVR == info.GVR }) {
			continue
		}
		named = append(named, info)
		fresh = append(fresh, info)
	}
	missing := len(s.mu.missing)
	s.named.Store(&named)
	s.mu.Unlock()
	for _, info := range fresh {
		s.start(info)
	}
	return missing
}

// seekInterval is how long what is missing is not looked for although there is a hint that it may
// be there: hints come in swarms.
const seekInterval = time.Second

// seek looks for the named resources that are missing until there are none, or the mirrors end.
func (s *Set) seek() {
	for {
		names, due := s.missingNames()
		if len(names) == 0 {
			return
		}
		select {
		case <-time.After(time.Until(due)):
		case <-s.sought:
			if !s.pause(seekInterval) {
				return
			}
		case <-s.ctx.Done():
			return
		}
		found, err := discovery.Resolve(s.ctx, s.client, names)
		if err != nil { // upstream is away, which says nothing of any
			found = nil
			s.postpone(states.Cause{Why: states.WhyUnreachable, Text: status.OneLine(err.Error())})
		}
		s.adopt(found)
	}
}

// missingNames are the names of those that are due first, and when that is.
func (s *Set) missingNames() (names []string, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.mu.missing)) {
		if at := s.mu.missing[name].due; due.IsZero() || at.Before(due) {
			due = at
		}
		names = append(names, name)
	}
	return names, due
}

// postpone has what is missing looked for later.
func (s *Set) postpone(cause states.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.mu.missing {
		state.Lose(lastAnswer(state.State().Cause(), cause), state.next(cause.Why))
	}
}

// lastAnswer is why a resource is refused once an attempt has failed: upstream's last words about
// it. An upstream that does not answer says nothing of it.
func lastAnswer(before, now states.Cause) states.Cause {
	if now.Why == states.WhyUnreachable && before.Why != states.WhyNone {
		return before
	}
	return now
}

// wantsSlot reports that no more resources may be mirrored on demand. Callers hold mu.
func (s *Set) wantsSlot(info *object.Resource, running map[schema.GroupVersionResource]*mirror) bool {
	if s.onDemand(running) < s.o.MaxOnDemand {
		return false
	}
	s.slots.passed.Add(1)
	if s.slots.said.Try(time.Now()) {
		s.log.Warn("passes through: as many resources are mirrored on demand as --max-resources allows",
			zap.Stringer("resource", info), zap.String("version", info.GVR.Version), zap.Int("max-resources", s.o.MaxOnDemand),
			zap.Uint64("requests", s.slots.passed.Load()))
	}
	return true
}

// slotRejections counts the requests that passed through for want of a slot.
type slotRejections struct {
	passed atomic.Uint64
	said   states.Pace // guarded by Set.mu
}
