package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// second is a moment some seconds after noon.
func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// sample is what was written each second: object 1 there from before, 2 created, deleted and
// created again.
func sample() []write {
	l := &eventLedger{}
	for i, w := range []write{{object: 1, rv: 10}, {object: 2, rv: 11}, {object: 1, rv: 12}, {object: 1, rv: 13},
		{object: 2}, {object: 2, rv: 15}, {object: 1}} {
		w.at = second(i)
		l.add(w)
	}
	writes, _ := l.until()
	return writes
}

func TestLedgerKnowsTheState(t *testing.T) {
	l := &eventLedger{}
	l.add(write{object: 1, rv: 10})
	l.add(write{object: 2, rv: 11})
	l.add(write{object: 1})
	if l.version(1) != 0 || l.version(2) != 11 {
		t.Errorf("versions %d, %d", l.version(1), l.version(2))
	}
	if writes, newest := l.until(); len(writes) != 2 || newest != 11 {
		t.Errorf("%d writes until %d: a deletion at the end has no version to wait for", len(writes), newest)
	}
}

// What the soak claims cannot happen is found when it happens.
func TestCompareFindsMissedAndRepeatedEvents(t *testing.T) {
	good := []receivedEvent{{kind: added, object: 2, rv: 11}, {kind: modified, object: 1, rv: 12},
		{kind: modified, object: 1, rv: 13}, {kind: deleted, object: 2, rv: 14}, {kind: added, object: 2, rv: 15}}
	// Upstream was away from second 2 to 4: a relist knows no version 12, and deletes at the version
	// before it.
	seam := []receivedEvent{{kind: added, object: 2, rv: 11}, {kind: deleted, object: 2, rv: 11},
		{kind: modified, object: 1, rv: 13}, {kind: added, object: 2, rv: 15}}
	there := func(time.Time, time.Time) bool { return false }
	away := func(from, to time.Time) bool { return !from.Before(second(2)) && !to.After(second(4)) }
	f := func(seen []receivedEvent, away func(from, to time.Time) bool, wantMerged int, wantError string) {
		t.Helper()
		listed := map[int]uint64{1: 10}
		merged, err := compare(sample(), listed, 10, seen, away)
		switch {
		case wantError == "" && err != nil:
			t.Errorf("refused: %v", err)
		case wantError != "" && (err == nil || !strings.Contains(err.Error(), wantError)):
			t.Errorf("error %v, want %q in it", err, wantError)
		case merged != wantMerged:
			t.Errorf("%d versions were merged, want %d", merged, wantMerged)
		}
		if !maps.Equal(listed, map[int]uint64{1: 10}) {
			t.Errorf("the list was changed: %v", listed)
		}
	}
	without := func(i int) []receivedEvent { return slices.Delete(slices.Clone(good), i, i+1) }
	twice := func(i int) []receivedEvent { return slices.Insert(slices.Clone(good), i, good[i]) }
	f(good, there, 0, "")
	f(seam, away, 1, "")
	f(seam, there, 0, "version 12 of object 1 was never seen")
	f(without(0), there, 0, "does not follow")
	f(without(1), there, 0, "version 12 of object 1 was never seen")
	f(without(3), there, 0, "does not follow")
	f(without(4), there, 0, "version 15 of object 2 was never seen")
	// nothing came after it
	f(without(4), func(_, _ time.Time) bool { return true }, 0, "version 15 of object 2 was never seen")
	f(twice(1), there, 0, "comes after")
	f(twice(3), there, 0, "does not follow")
	f(append(slices.Clone(good), receivedEvent{kind: modified, object: 1, rv: 16}), there, 0, "was never written")
	f(append(slices.Clone(good), receivedEvent{kind: deleted, object: 1, rv: 16}), there, 0, "ends at version 0")
	swapped := slices.Clone(good)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	f(swapped, there, 0, "comes after")
}

func TestSinceIsWhatAListDoesNotHold(t *testing.T) {
	if got := since(sample(), 13); len(got) != 2 || got[0].rv != 0 || got[1].rv != 15 {
		t.Errorf("since 13: %v", got)
	}
}
