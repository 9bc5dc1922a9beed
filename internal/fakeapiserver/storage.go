package fakeapiserver

import (
	"sort"
	"sync"
	"time"

	"github.com/tidwall/btree"
)

// change is one write: an object appeared (Old nil), was replaced, or went away (New nil).
// Immutable once stored.
type change struct {
	RV       uint64
	New, Old *Obj
	lost     bool // the watches that were open when it was stored are never told
	corrupt  bool // a deletion whose object cannot be decoded: an ERROR in its place ends a watch

	once sync.Once
	gone *Obj
}

// last is the previous version with the resourceVersion of the change: what a DELETED event carries
// (W-103, W-104).
func (c *change) last(r *Resource) *Obj {
	c.once.Do(func() { c.gone = r.at(c.Old, c.RV) })
	return c.gone
}

// objects are the objects of one resource by storage key.
type objects = btree.Map[string, *Obj]

// table is one resource: its objects and changes in storage, and how far its watch cache has come.
//
// Positions count changes since the server started and never go back; log[0] is at position
// dropped. Always dropped <= sent <= cached <= end. Guarded by Server.mu.
type table struct {
	kind    *Resource
	objects *objects  // after the last change
	log     []*change // every change since oldest
	dropped int       // position of log[0]
	oldest  uint64    // RV of the state before log[0]

	cached   int    // changes before this position are in the watch cache
	sent     int    // changes before this position were handed to the open watches
	progress uint64 // RV up to which the watch cache is known to be complete
	floor    uint64 // oldest RV that a watch may start from

	delay     time.Duration
	held      bool // HoldWatch
	losing    int  // LoseEvents
	lagging   bool // HoldCache
	corrupt   bool // CorruptDelete
	bookmarks bool // false after SuppressBookmarks

	streams map[*stream]struct{}
	opened  Count
	lists   int
	wake    chan struct{} // closed and replaced when streams should look again
}

func newTable(r *Resource, rev uint64) *table {
	return &table{
		kind: r, objects: new(objects), oldest: rev, floor: rev, progress: rev, bookmarks: true,
		streams: map[*stream]struct{}{}, wake: make(chan struct{}),
	}
}

func (t *table) end() int { return t.dropped + len(t.log) }

func (t *table) at(position int) *change { return t.log[position-t.dropped] }

// after is the position of the first change newer than rv.
func (t *table) after(rv uint64) int {
	return t.dropped + sort.Search(len(t.log), func(i int) bool { return t.log[i].RV > rv })
}

// view is the state before the change at position, which must not be dropped. The caller owns it.
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
	if t.sent < t.cached {
		return min(t.progress, t.at(t.sent).RV-1)
	}
	return t.progress
}

// rouse makes all streams of the resource look again.
func (t *table) rouse() {
	close(t.wake)
	t.wake = make(chan struct{})
}

// advance lets the watch cache apply all that is stored, unless it is held.
func (t *table) advance() {
	if t.lagging {
		return
	}
	if t.cached = t.end(); t.cached > t.dropped {
		t.progress = max(t.progress, t.at(t.cached-1).RV)
	}
}

// release hands the changes before position to the open watches, unless they are held.
func (t *table) release(position int) {
	if !t.held {
		t.sent = max(t.sent, min(position, t.cached))
		t.rouse()
	}
}

// forget starts the watch cache afresh from storage, as kube-apiserver does when it starts or
// relists (W-107, W-115).
func (t *table) forget(rev uint64) {
	t.cached, t.sent, t.lagging = t.end(), t.end(), false
	t.floor, t.progress = rev, rev
}

// reset replaces objects and drops all history: storage itself is another one now.
func (t *table) reset(to *objects, rev uint64) {
	t.dropped = t.end()
	t.log, t.objects, t.oldest = nil, to, rev
	t.forget(rev)
}

// trim drops the oldest changes above limit, a tenth of them at once.
func (t *table) trim(limit int) {
	if len(t.log) <= limit+limit/10 {
		return
	}
	n := len(t.log) - limit
	t.oldest = t.log[n-1].RV
	t.floor = max(t.floor, t.log[n].RV-1)
	t.log = append([]*change(nil), t.log[n:]...)
	t.dropped += n
	t.sent, t.cached = max(t.sent, t.dropped), max(t.cached, t.dropped)
}

// commitLocked stores one change at the next revision and starts its way through the watch cache.
func (s *Server) commitLocked(t *table, c *change) {
	s.rev = c.RV
	if c.New != nil {
		t.objects.Set(c.New.Key, c.New)
	} else {
		t.objects.Delete(c.Old.Key)
	}
	c.corrupt = t.corrupt
	if t.losing > 0 {
		t.losing--
		c.lost = true
	}
	t.log = append(t.log, c)
	t.trim(s.opts.History)
	t.advance()
	s.sendLocked(t)
	s.changedLocked()
}

// sendLocked releases what the cache has applied: now, or after the delay of DelayWatch.
func (s *Server) sendLocked(t *table) {
	if t.delay == 0 {
		t.release(t.cached)
		return
	}
	position := t.cached
	s.afterLocked(t.delay, func() { t.release(position) })
}

// afterLocked runs f with mu held after d, unless the server is closed before.
func (s *Server) afterLocked(d time.Duration, f func()) {
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, timer)
		f()
	})
	s.timers[timer] = struct{}{}
}

// progressLocked tells every watch cache how far storage is. Any consistent read of any resource
// has this effect (W-111).
func (s *Server) progressLocked() {
	for _, t := range s.order {
		if !t.lagging {
			t.progress = s.rev
		}
	}
}
