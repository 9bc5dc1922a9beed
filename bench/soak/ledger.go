package main

import (
	"fmt"
	"sync"
	"time"
)

// write is one write that took place.
type write struct {
	object   int
	rv       uint64    // 0: it deleted the object, and the answer does not have the version of that
	at       time.Time // of its acknowledgement; or when it was found to have taken place, if the answer was lost
	answered bool
}

// eventLedger is every write, in order: there is one writer. It comes from the answers to the
// writes, so that no watch has a part in it.
type eventLedger struct {
	mu struct {
		sync.Mutex
		writes []write
		newest uint64
		exists map[int]uint64 // the version of each object that there is
	}
}

func (l *eventLedger) add(w write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.writes = append(l.mu.writes, w)
	if w.rv == 0 {
		delete(l.mu.exists, w.object)
		return
	}
	if l.mu.exists == nil {
		l.mu.exists = map[int]uint64{}
	}
	l.mu.exists[w.object], l.mu.newest = w.rv, w.rv
}

// version is that of an object, 0 if there is none.
func (l *eventLedger) version(object int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.exists[object]
}

// until is every write up to the newest that has a version, and that version.
func (l *eventLedger) until() ([]write, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.mu.writes)
	for n > 0 && l.mu.writes[n-1].rv == 0 {
		n--
	}
	return l.mu.writes[:n:n], l.mu.newest
}

// kind is that of an event.
type kind byte

const (
	added kind = iota
	modified
	deleted
)

// String is what the protocol calls it.
func (k kind) String() string { return [...]string{"ADDED", "MODIFIED", "DELETED"}[k] }

// receivedEvent is an event that a client received.
type receivedEvent struct {
	kind   kind
	object int
	rv     uint64
	at     time.Time
}

// compare holds what a client saw against what was written since it listed the objects as they were
// at a version: each event once, in order, and nothing else. While upstream is unreachable, a
// version may be overwritten before the mirror has seen it: these are counted.
func compare(
	writes []write,
	listed map[int]uint64,
	from uint64,
	seen []receivedEvent,
	away func(from, to time.Time) bool,
) (
	merged int, err error) {
	later := since(writes, from)
	state, err := follow(later, listed, from, seen)
	if err != nil {
		return 0, err
	}
	if merged, err = missing(later, seen, away); err != nil {
		return 0, err
	}
	truth := clone(listed)
	for _, w := range later {
		set(truth, w.object, w.rv)
	}
	for object := range objects {
		if state[object] != truth[object] {
			return 0, fmt.Errorf("object %d ends at version %d, not %d (0: there is none)", object, state[object], truth[object])
		}
	}
	return merged, nil
}

// since are the writes after a version.
func since(writes []write, rv uint64) []write {
	first := 0
	for i, w := range writes {
		if w.rv != 0 && w.rv <= rv {
			first = i + 1
		}
	}
	return writes[first:]
}

// follow plays the events, each of which must be a write and follow from what was seen before, and
// returns the state they lead to.
func follow(writes []write, listed map[int]uint64, from uint64, seen []receivedEvent) (map[int]uint64, error) {
	written := map[uint64]int{}
	for _, w := range writes {
		written[w.rv] = w.object
	}
	state, newest := clone(listed), from
	for i, s := range seen {
		object, known := written[s.rv]
		switch {
		case s.rv < newest || s.rv == newest && s.kind != deleted:
			return nil, fmt.Errorf("event %d, %s of object %d at %d, comes after %d", i, s.kind, s.object, s.rv, newest)
		case s.kind != deleted && (!known || object != s.object):
			return nil, fmt.Errorf("event %d, %s of object %d at %d, was never written", i, s.kind, s.object, s.rv)
		case (s.kind == added) != (state[s.object] == 0):
			return nil, fmt.Errorf("event %d, %s of object %d at %d, does not follow from its version %d (0: there is none)", i,
				s.kind, s.object, s.rv, state[s.object])
		}
		newest = s.rv
		if s.kind == deleted {
			delete(state, s.object)
		} else {
			state[s.object] = s.rv
		}
	}
	return state, nil
}

// missing counts the versions that were not seen and were overwritten while upstream was
// unreachable. Any other is an error.
func missing(writes []write, seen []receivedEvent, away func(from, to time.Time) bool) (int, error) {
	told := map[uint64]bool{}
	for _, s := range seen {
		if s.kind != deleted {
			told[s.rv] = true
		}
	}
	next := map[int]write{} // of each object, the write after the one that is looked at
	merged := 0
	for i := len(writes) - 1; i >= 0; i-- {
		w := writes[i]
		if w.rv != 0 && !told[w.rv] {
			if over, found := next[w.object]; !found || !away(w.at, over.at) {
				return 0, fmt.Errorf("version %d of object %d was never seen", w.rv, w.object)
			}
			merged++
		}
		next[w.object] = w
	}
	return merged, nil
}

func clone(state map[int]uint64) map[int]uint64 {
	own := make(map[int]uint64, len(state))
	for object, rv := range state {
		own[object] = rv
	}
	return own
}

func set(state map[int]uint64, object int, rv uint64) {
	if rv == 0 {
		delete(state, object)
	} else {
		state[object] = rv
	}
}
