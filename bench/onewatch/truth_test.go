package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

var (
	front = labels.Set{"tier": "front"}
	back  = labels.Set{"tier": "back"}
)

func sample() *acknowledgedWrites {
	t := &acknowledgedWrites{}
	t.add(change{rv: 14, namespace: "red", name: "b", after: back})
	t.add(change{rv: 11, namespace: "red", name: "a", after: front})
	t.add(change{rv: 12, namespace: "red", name: "a", before: front, after: back})
	t.add(change{rv: 13, namespace: "red", name: "a", before: back, after: front})
	t.add(change{rv: 15, namespace: "blue", name: "a", after: front})
	t.add(change{rv: 16, namespace: "red", name: "a", before: front})
	t.sort()
	return t
}

// Selectors turn changes into appearances and disappearances.
func TestExpected(t *testing.T) {
	f := func(s scope, rv uint64, want ...receivedEvent) {
		t.Helper()
		if got := sample().expected(s, rv); !slices.Equal(got, want) {
			t.Errorf("expected(%v, %d) = %v, want %v", s, rv, got, want)
		}
	}
	f(scope{"red", labels.SelectorFromSet(front)}, 0,
		receivedEvent{"ADDED", "red/a", 11}, receivedEvent{"DELETED", "red/a", 12}, receivedEvent{"ADDED", "red/a", 13},
		receivedEvent{"DELETED", "red/a", 16})
	f(scope{"red", labels.Everything()}, 12,
		receivedEvent{"MODIFIED", "red/a", 13}, receivedEvent{"ADDED", "red/b", 14}, receivedEvent{"DELETED", "red/a", 16})
	f(scope{"blue", labels.SelectorFromSet(back)}, 0)
}

func TestState(t *testing.T) {
	f := func(s scope, rv uint64, want map[string]uint64) {
		t.Helper()
		if d := stateDifference(sample().state(s, rv), want); d != "" {
			t.Errorf("state(%v, %d): %s", s, rv, d)
		}
	}
	f(scope{"", labels.Everything()}, 16, map[string]uint64{"red/b": 14, "blue/a": 15})
	f(scope{"", labels.SelectorFromSet(front)}, 15, map[string]uint64{"red/a": 13, "blue/a": 15})
	f(scope{"red", labels.SelectorFromSet(front)}, 12, map[string]uint64{})
}

// What the show claims cannot happen is found when it happens.
func TestDifference(t *testing.T) {
	want := sample().expected(scope{"", labels.Everything()}, 0)
	f := func(seen []receivedEvent, found string) {
		t.Helper()
		if d := difference(seen, want); found == "" && d != "" || !strings.Contains(d, found) {
			t.Errorf("difference = %q, want %q in it", d, found)
		}
	}
	f(want, "")
	f(slices.Delete(slices.Clone(want), 2, 3), "event 2")
	f(want[:5], "missing")
	f(slices.Insert(slices.Clone(want), 3, want[2]), "event 3")
	f(append(slices.Clone(want), want[5]), "one too many")
	swapped := slices.Clone(want)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	f(swapped, "event 0")
}
