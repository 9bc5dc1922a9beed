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

// mirrorResolved mirrors the named resources that upstream serves, and remembers as missing those
// that it does not. It returns how many of these may be found later.
func (s *Set) mirrorResolved(found []discovery.Resolution) int {
	s.mu.Lock()
	named := slices.Clone(*s.named.Load())
	var added []*object.Resource
	for _, r := range found {
		if r.Err != nil {
			s.noteMissingLocked(r.Name, causeOf(s.client.ExplainUnauthorized(r.Err)), isNever(r.Err))
			continue
		}
		delete(s.mu.missing, r.Name) // the mirror has a state of its own, by the resource's full name
		if !slices.ContainsFunc(named, func(other *object.Resource) bool { return other.GVR == r.Resource.GVR }) {
			named = append(named, r.Resource)
			added = append(added, r.Resource)
		}
	}
	names, _ := s.missingNamesLocked()
	s.named.Store(&named)
	s.mu.Unlock()
	for _, info := range added {
		s.start(info)
	}
	return len(names)
}

// noteMissingLocked notes that a named resource was not found, and plans when to look for it again,
// unless it is never mirrored.
func (s *Set) noteMissingLocked(name string, cause states.Cause, isNever bool) {
	state := s.mu.missing[name]
	if state == nil {
		state = s.newState(labelsOf(name))
		s.mu.missing[name] = state
	}
	if isNever {
		state.loseLocked(cause)
		return
	}
	state.loseUntilRetryLocked(causeAfter(state.State().Cause(), cause))
}

// missingHintInterval is how long missing resources are not looked for although there is a hint
// that they may be there: hints come in swarms.
const missingHintInterval = time.Second

// hintMissing has missing resources looked for soon.
func (s *Set) hintMissing() {
	select {
	case s.missingHint <- struct{}{}:
	default:
	}
}

// findMissing looks for the named resources that are missing until no further one can be found, or
// the mirrors end.
func (s *Set) findMissing() {
	for {
		s.mu.Lock()
		names, due := s.missingNamesLocked()
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		select {
		case <-time.After(time.Until(due)):
		case <-s.missingHint:
			if !s.pause(missingHintInterval) {
				return
			}
		case <-s.ctx.Done():
			return
		}
		found, err := discovery.Resolve(s.ctx, s.client, names)
		if err != nil {
			s.postponeMissing(states.Cause{Why: states.WhyUnreachable, Text: status.OneLine(err.Error())})
			continue
		}
		s.mirrorResolved(found)
	}
}

// missingNamesLocked are the names of the missing resources that may be found later, and when the
// first of them is due.
func (s *Set) missingNamesLocked() (names []string, due time.Time) {
	for _, name := range slices.Sorted(maps.Keys(s.mu.missing)) {
		at := s.mu.missing[name].due
		if at.IsZero() { // it is never mirrored
			continue
		}
		if due.IsZero() || at.Before(due) {
			due = at
		}
		names = append(names, name)
	}
	return names, due
}

// postponeMissing has all missing resources looked for later.
func (s *Set) postponeMissing(cause states.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, _ := s.missingNamesLocked()
	for _, name := range names {
		s.noteMissingLocked(name, cause, false)
	}
}

// bareVersion is what a version of an API looks like, other than a group.
var bareVersion = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// labelsOf are the labels of a resource[.version][.group] that upstream does not serve: those that
// it gets once it is served, as far as they follow from its name.
func labelsOf(name string) (resource, version string) {
	resource, rest, _ := strings.Cut(name, ".")
	version, group, _ := strings.Cut(rest, ".")
	if !bareVersion.MatchString(version) {
		return name, ""
	}
	return strings.TrimSuffix(resource+"."+group, "."), version
}
