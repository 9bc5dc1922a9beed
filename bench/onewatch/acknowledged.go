package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
)

// change is one write that the API server acknowledged.
type change struct {
	rv              uint64
	namespace, name string
	before, after   labels.Set // nil: the object did not, or does not, exist
}

// acknowledgedWrites is every acknowledged write. It comes from the answers to the writes, so that
// no watch has a part in it.
type acknowledgedWrites struct {
	mu      sync.Mutex
	changes []change
}

func (t *acknowledgedWrites) add(c change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = append(t.changes, c)
}

// sort brings the changes into etcd's order. Call it when the writes have ended.
func (t *acknowledgedWrites) sort() {
	slices.SortFunc(t.changes, func(a, b change) int { return cmp.Compare(a.rv, b.rv) })
}

// scope is what a client requests.
type scope struct {
	namespace string // "" for all
	selector  labels.Selector
}

// receivedEvent is an event as a client received it.
type receivedEvent struct {
	kind string
	key  string
	rv   uint64
}

// expected is what a client of this scope must receive about the changes after rv, by Kubernetes'
// rules for selectors.
func (t *acknowledgedWrites) expected(s scope, rv uint64) []receivedEvent {
	var out []receivedEvent
	for _, c := range t.changes {
		if c.rv <= rv || s.namespace != "" && s.namespace != c.namespace {
			continue
		}
		was := c.before != nil && s.selector.Matches(c.before)
		is := c.after != nil && s.selector.Matches(c.after)
		kind := ""
		switch {
		case !was && is:
			kind = "ADDED"
		case was && is:
			kind = "MODIFIED"
		case was && !is:
			kind = "DELETED"
		default:
			continue
		}
		out = append(out, receivedEvent{kind, c.namespace + "/" + c.name, c.rv})
	}
	return out
}

// state is what a list of this scope at rv must hold: the version of each object by its key.
func (t *acknowledgedWrites) state(s scope, rv uint64) map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range t.changes {
		if c.rv > rv {
			break
		}
		if s.namespace != "" && s.namespace != c.namespace {
			continue
		}
		key := c.namespace + "/" + c.name
		if c.after != nil && s.selector.Matches(c.after) {
			out[key] = c.rv
		} else {
			delete(out, key)
		}
	}
	return out
}

// difference describes the first difference between what was seen and what was to be seen, "" if
// there is none.
func difference(seen, expected []receivedEvent) string {
	for i := range min(len(seen), len(expected)) {
		if seen[i] != expected[i] {
			return fmt.Sprintf("event %d is %v, expected %v", i, seen[i], expected[i])
		}
	}
	switch {
	case len(seen) < len(expected):
		return fmt.Sprintf("%d of %d events; missing from %v on", len(seen), len(expected), expected[len(seen)])
	case len(seen) > len(expected):
		return fmt.Sprintf("%d events, expected %d; one too many: %v", len(seen), len(expected), seen[len(expected)])
	}
	return ""
}
