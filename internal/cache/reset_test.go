package cache

import (
	"testing"

	"spillway/internal/object"
)

// A reader may have looked at the bounds just before history became void: it must not find itself
// beyond that.
func TestSearchNeverCrossesVoidHistory(t *testing.T) {
	l := newLog()
	l.reset(100, 100)
	l.append([]Entry{{Event: object.Event{RV: 101}, CompleteRV: 101}})
	before := l.bounds.Load()
	// The first two steps of a reset to 90; the old entries are still there.
	start := l.Head() + 1
	l.bounds.Store(&bounds{floorRV: 90, completeRV: 90, greatestRV: 101, position: start})
	l.entries.Append(Entry{Event: object.Event{RV: 90}, CompleteRV: 90})
	if pos, ok := l.search(before.position, l.Head(), 101); ok {
		t.Fatalf("101, of the history that is void, was found at %d; the new history starts at %d", pos, start)
	}
}
