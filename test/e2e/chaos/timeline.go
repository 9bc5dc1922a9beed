package chaos

import (
	"maps"
	"slices"
	"sort"
)

// version is one state of an object, or its end.
type version struct {
	rv   uint64
	uid  string
	mark string // what its writer wrote into it: no two versions of an object share one
	team string // the label that selectors match
	gone bool
}

// same reports that both are the same version.
func (v version) same(o version) bool { return v == o }

// view says which objects a client sees: those of a resource, in a namespace and of a team, if it
// selects one.
type view struct {
	resource, namespace, team string
}

func (v view) sees(key string, o version) bool {
	return !o.gone && (v.team == "" || v.team == o.team) && v.spans(key)
}

// spans reports that an object of this key may be seen.
func (v view) spans(key string) bool {
	return v.namespace == "" || len(key) > len(v.namespace) && key[:len(v.namespace)] == v.namespace &&
		key[len(v.namespace)] == '/'
}

// timeline is all that happened to all objects, by etcd's word, from a state on. A restored etcd
// begins another one that shares the beginning with it.
type timeline struct {
	objects map[string]map[string][]version // by resource and key, ascending
	head    uint64                          // the greatest resourceVersion of which anything is known
}

func newTimeline() *timeline { return &timeline{objects: map[string]map[string][]version{}} }

// add notes what happened at a resourceVersion after all others.
func (t *timeline) add(resource, key string, v version) {
	if t.objects[resource] == nil {
		t.objects[resource] = map[string][]version{}
	}
	past := t.objects[resource][key]
	if v.gone && len(past) > 0 {
		v.uid = past[len(past)-1].uid
	}
	t.objects[resource][key] = append(past, v)
	t.head = max(t.head, v.rv)
}

// branch is the timeline as it was at rv, to go on differently.
func (t *timeline) branch(rv uint64) *timeline {
	b := newTimeline()
	b.head = rv
	for resource, objects := range t.objects {
		b.objects[resource] = map[string][]version{}
		for key, versions := range objects {
			i := after(versions, rv)
			if i > 0 {
				b.objects[resource][key] = slices.Clone(versions[:i])
			}
		}
	}
	return b
}

// after is the first of the versions that is newer than rv.
func after(versions []version, rv uint64) int {
	return sort.Search(len(versions), func(i int) bool { return versions[i].rv > rv })
}

// at is the version of an object that was there at rv; one that is gone if none was.
func (t *timeline) at(resource, key string, rv uint64) version {
	versions := t.objects[resource][key]
	if i := after(versions, rv); i > 0 {
		return versions[i-1]
	}
	return version{gone: true}
}

// state is what a view shows at rv.
func (t *timeline) state(v view, rv uint64) map[string]version {
	state := map[string]version{}
	for key := range t.objects[v.resource] {
		if o := t.at(v.resource, key, rv); v.sees(key, o) {
			state[key] = o
		}
	}
	return state
}

// change is what a view shows of one event.
type change struct {
	kind, key string
	version   version // what is shown; its rv is the event's
}

// seen is what the view shows of what happened to key at exactly rv: "" if nothing.
func (t *timeline) seen(v view, key string, rv uint64) change {
	new, old := t.at(v.resource, key, rv), t.at(v.resource, key, rv-1)
	if new.rv != rv {
		return change{}
	}
	was, is := v.sees(key, old), v.sees(key, new)
	switch {
	case is && was && new.uid == old.uid:
		return change{"MODIFIED", key, new}
	case is:
		return change{"ADDED", key, new}
	case was:
		old.rv = rv
		return change{"DELETED", key, old}
	}
	return change{}
}

// between is the first thing that a view shows of what happened after one resourceVersion and
// before another.
func (t *timeline) between(v view, from, to uint64) (change, bool) {
	for _, key := range slices.Sorted(maps.Keys(t.objects[v.resource])) {
		versions := t.objects[v.resource][key]
		for i := after(versions, from); i < len(versions) && versions[i].rv < to; i++ {
			if c := t.seen(v, key, versions[i].rv); c.kind != "" {
				return c, true
			}
		}
	}
	return change{}, false
}

// leaves reports that the view, which showed this version of the object, did not show that very
// object at some later time.
func (t *timeline) leaves(v view, key string, held version) bool {
	versions := t.objects[v.resource][key]
	i := after(versions, held.rv)
	if i == 0 || !versions[i-1].same(held) {
		return true // it has never been there on this timeline
	}
	return slices.ContainsFunc(versions[i:], func(o version) bool { return !v.sees(key, o) || o.uid != held.uid })
}
