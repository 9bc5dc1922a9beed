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

// acknowledgedWrites are the writes of seven seconds, without the last one: until leaves a deletion
// out that no version follows. Object 1 is modified, object 2 is created, deleted and created
// again.
func acknowledgedWrites() []write {
	l := &eventLedger{}
	for _, w := range []write{
		{at: second(0), object: 1, rv: 10},
		{at: second(1), object: 2, rv: 11},
		{at: second(2), object: 1, rv: 12},
		{at: second(3), object: 1, rv: 13},
		{at: second(4), object: 2},
		{at: second(5), object: 2, rv: 15},
		{at: second(6), object: 1},
	} {
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

// unreachability reports that the API server was unreachable from one moment to another.
type unreachability = func(from, to time.Time) bool

func neverUnreachable(time.Time, time.Time) bool { return false }

func alwaysUnreachable(time.Time, time.Time) bool { return true }

func unreachable2to4(from, to time.Time) bool {
	return !from.Before(second(2)) && !to.After(second(4))
}

func TestCompareFindsMissedAndRepeatedEvents(t *testing.T) {
	complete := []receivedEvent{
		{kind: added, object: 2, rv: 11},
		{kind: modified, object: 1, rv: 12},
		{kind: modified, object: 1, rv: 13},
		{kind: deleted, object: 2, rv: 14},
		{kind: added, object: 2, rv: 15},
	}
	// After a relist the mirror does not know version 12. Its deletion of object 2 has the version
	// that the mirror had before the relist.
	relisted := []receivedEvent{
		{kind: added, object: 2, rv: 11},
		{kind: deleted, object: 2, rv: 11},
		{kind: modified, object: 1, rv: 13},
		{kind: added, object: 2, rv: 15},
	}
	without := func(i int) []receivedEvent { return slices.Delete(slices.Clone(complete), i, i+1) }
	twice := func(i int) []receivedEvent { return slices.Insert(slices.Clone(complete), i, complete[i]) }
	with := func(e receivedEvent) []receivedEvent { return append(slices.Clone(complete), e) }
	swapped := slices.Clone(complete)
	swapped[1], swapped[2] = swapped[2], swapped[1]

	for _, c := range []struct {
		name        string
		seen        []receivedEvent
		unreachable unreachability
		merged      int
		err         string // a part of it; empty: none
	}{
		{"each event once", complete, neverUnreachable, 0, ""},
		{"a version overwritten during an outage", relisted, unreachable2to4, 1, ""},
		{"a version overwritten without an outage", relisted, neverUnreachable, 0,
			"version 12 of object 1 was never seen"},
		{"a missed creation", without(0), neverUnreachable, 0, "does not follow"},
		{"a missed modification", without(1), neverUnreachable, 0, "version 12 of object 1 was never seen"},
		{"a missed deletion", without(3), neverUnreachable, 0, "does not follow"},
		{"a missed event at the end", without(4), neverUnreachable, 0, "version 15 of object 2 was never seen"},
		{"a missed event that no write overwrote", without(4), alwaysUnreachable, 0,
			"version 15 of object 2 was never seen"},
		{"a repeated modification", twice(1), neverUnreachable, 0, "comes after"},
		{"a repeated deletion", twice(3), neverUnreachable, 0, "does not follow"},
		{"a modification without a write", with(receivedEvent{kind: modified, object: 1, rv: 16}), neverUnreachable, 0,
			"was never written"},
		{"a deletion without a write", with(receivedEvent{kind: deleted, object: 1, rv: 16}), neverUnreachable, 0,
			"ends at version 0"},
		{"events in the wrong order", swapped, neverUnreachable, 0, "comes after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			listed := map[int]uint64{1: 10}
			merged, err := compare(acknowledgedWrites(), listed, 10, c.seen, c.unreachable)
			switch {
			case c.err == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %q in it", err, c.err)
			case merged != c.merged:
				t.Errorf("%d versions were merged, want %d", merged, c.merged)
			}
			if !maps.Equal(listed, map[int]uint64{1: 10}) {
				t.Errorf("the list was changed: %v", listed)
			}
		})
	}
}

func TestSinceReturnsWhatAListDoesNotHold(t *testing.T) {
	if got := since(acknowledgedWrites(), 13); len(got) != 2 || got[0].rv != 0 || got[1].rv != 15 {
		t.Errorf("since 13: %v", got)
	}
}
