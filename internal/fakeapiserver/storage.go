package fakeapiserver

import (
	"sort"
	"sync"
	"time"

	"github.com/tidwall/btree"
)

// change is one write: an object appeared (Old nil), was replaced, or was removed (New nil).
// Immutable once stored.
type change struct {
	RV       uint64
	New, Old *Obj
	lost     bool        // the watches that are open when it is stored never receive it
	corrupt  bool        // a deletion whose object cannot be decoded: an ERROR in its place ends a watch
	last     func() *Obj // Old with the RV of the change: what a DELETED event carries (W-103, W-104)
}

// objects are the objects of one resource by storage key.
type objects = btree.Map[string, *Obj]

// table is one resource: its objects and changes in storage, and what its open watches have
// received.
//
// Positions count changes since the server started and never go back; log[0] is at position first.
// Always first <= sent <= end. Guarded by Server.mu.
type table struct {
	kind    *Resource
	objects *objects  // after the last change
	log     []*change // every change since oldest
	first   int       // position of log[0]
	oldest  uint64    // RV of the state before log[0]

	sent     int    // changes before this position were handed to the open watches
	progress uint64 // RV up to which the watch cache knows that it is complete
	floor    uint64 // oldest RV that a watch may start from

	delay       time.Duration // DelayWatch
	held        bool          // HoldWatch
	losing      int           // LoseEvents
	noBookmarks bool          // SuppressBookmarks

	streams map[*stream]struct{}
	opened  Count
	lists   int
	wake    chan struct{} // closed and replaced when streams should look again
}

func newTable(r *Resource, rev uint64) *table {
	return &table{
		kind: r, objects: new(objects), oldest: rev, floor: rev, progress: rev,
		streams: map[*stream]struct{}{}, wake: make(chan struct{}),
	}
}

func (t *table) end() int { return t.first + len(t.log) }

func (t *table) at(position int) *change { return t.log[position-t.first] }

// after is the position of the first change newer than rv.
func (t *table) after(rv uint64) int {
	return t.first + sort.Search(len(t.log), func(i int) bool { return t.log[i].RV > rv })
}

// view is the state before the change at position, which must be in the log, or its end. The caller
// owns it.
func (t *table) view(position int) *objects {
	state := t.objects.Copy()
	for p := t.end() - 1; p >= position; p-- {
		if c := t.at(p); c.Old != nil {
			state.Set(c.Old.Key, c.Old)
		} else {
			state.Delete(c.New.Key)
		}
	}
	return state
}

// dispatched is the RV that a bookmark may claim: every change up to it was handed to the open
// watches.
func (t *table) dispatched() uint64 {
	if t.sent < t.end() {
		return min(t.progress, t.at(t.sent).RV-1)
	}
	return t.progress
}

// rouse makes all streams of the resource look again.
func (t *table) rouse() {
	close(t.wake)
	t.wake = make(chan struct{})
}

// release hands the changes before position to the open watches, unless they are held.
func (t *table) release(position int) {
	if !t.held {
		t.sent = max(t.sent, position)
		t.rouse()
	}
}

// forget starts the watch cache again from storage, as kube-apiserver does when it starts or
// relists (W-107, W-115).
func (t *table) forget(rev uint64) {
	t.sent = t.end()
	t.floor, t.progress = rev, rev
}

// reset replaces objects and drops all history: storage itself is another one now. The open watches
// must be stopped with it.
func (t *table) reset(to *objects, rev uint64) {
	t.first = t.end()
	t.log, t.objects, t.oldest = nil, to, rev
	t.forget(rev)
}

// commitLocked stores one change at the next revision and hands it to the open watches.
func (s *Server) commitLocked(t *table, c *change) {
	s.rev, t.progress = c.RV, c.RV
	if c.New != nil {
		t.objects.Set(c.New.Key, c.New)
	} else {
		t.objects.Delete(c.Old.Key)
	}
	c.last = sync.OnceValue(func() *Obj { return t.kind.withRV(c.Old, c.RV) })
	if t.losing > 0 {
		t.losing--
		c.lost = true
	}
	t.log = append(t.log, c)
	s.deliverLocked(t)
	s.changedLocked()
}

// deliverLocked hands what is stored to the open watches: now, or after the delay of DelayWatch.
func (s *Server) deliverLocked(t *table) {
	position := t.end()
	if t.delay == 0 {
		t.release(position)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(t.delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, timer)
		t.release(position)
	})
	s.timers[timer] = struct{}{}
}

// progressLocked tells every watch cache how far storage is. Any consistent read of any resource
// has this effect (W-111).
func (s *Server) progressLocked() {
	for _, t := range s.order {
		t.progress = s.rev
	}
}
