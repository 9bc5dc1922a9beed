package mirror

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/status"
	"spillway/internal/upstream/discovery"
)

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

// bareVersion is what a version of an API looks like, other than a group.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// labelsOf are the labels of a resource[.version][.group] that upstream does not serve: those that
// it gets once it is served, as far as they follow from its name.
func labelsOf(name string) (resource, version string) {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) == 1 || !bareVersion.MatchString(parts[1]) {
		return name, ""
	}
	return strings.TrimSuffix(strings.Join(slices.Delete(slices.Clone(parts), 1, 2), "."), "."), parts[1]
}
