// Package fanout turns one resource's log into many filtered, framed feeds, and gives every client
// a cursor in them.
//
// Invariant: nothing is ever queued for a client. Clients pull: what they have not taken costs
// nothing, and neither the hub nor anything upstream of it can wait for one of them.
package fanout

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/cache"
)

// Hub reads one resource's log and hands each event to the feeds whose selectors it concerns.
//
// One goroutine dispatches (Run), by an index of the feeds that it alone uses. Feeds that come and
// go meanwhile wait in lists until the next batch, so that either side holds their lock for a few
// words at a time. Pushing into a queue per client, as kube-apiserver does, would make the hub
// decide what to do with a full queue; here there is none.
type Hub struct {
	// Static after construction.
	resource    *cache.Resource
	budget      *ByteBudget // nil: no limit
	laneLimiter *LaneLimiter
	stats       *Stats // a lane's are its hub's

	// Of a lane, likewise.
	parent     *Hub // nil: it is no lane
	owner      Owner
	cancel     context.CancelFunc
	bytesLimit int64 // of its feeds

	// Written by the dispatcher, read by all.
	progress atomic.Pointer[progress]

	lowMemory atomic.Bool // see SetLowMemory

	// The dispatcher's.
	index       index
	frames      frameCache
	feedsToWake []*Feed // after the batch under way
	inLowMemory bool    // lowMemory, as the last batch found it
	feedBytes   int64   // bytes of all feeds, as the budget counts them

	mu struct {
		// Held by streams that subscribe or leave, and by the dispatcher once per batch.
		sync.Mutex
		feeds     map[feedKey]*Feed
		newFeeds  map[*Feed]struct{} // feeds that the index lacks
		leftFeeds []*Feed            // feeds that it has, and nothing follows any more
	}
	lanes lanes
}

// progress is how far the hub has dispatched: every event below position is in its feeds, which
// makes them complete through a resourceVersion. Positions never lie inside a seam, because a seam
// is appended as one.
type progress struct{ position, completeRV uint64 }

// Stats count what the hub did, since it was made.
type Stats struct {
	Events                  atomic.Uint64 // dispatched
	SelectorEvaluations     atomic.Uint64 // of selectors with an event, by the dispatcher
	LaneSelectorEvaluations atomic.Uint64 // likewise, by lanes
	Frames                  atomic.Uint64 // made for feeds: once each, however many streams share it
	Shares                  atomic.Uint64 // streams that shared them, summed up: the deliveries that they need
	ReplayedFrames          atomic.Uint64 // frames made for single cursors that read the log
	DispatchStalls          atomic.Uint64 // dispatches of one batch that took longer than stallThreshold
	Overruns                atomic.Uint64 // times the log moved past the hub or a lane
	FeedOverruns            atomic.Uint64 // times a feed moved past a cursor, which went on from the log
}

// stallThreshold is far above what a batch costs and far below what a client may stall.
const stallThreshold = time.Second

// NewHub makes a hub that follows the resource's log once it Runs.
func NewHub(r *cache.Resource) *Hub {
	h := newHub(r)
	h.stats = &Stats{}
	return h
}

func newHub(r *cache.Resource) *Hub {
	h := &Hub{resource: r}
	h.mu.feeds, h.mu.newFeeds = map[feedKey]*Feed{}, map[*Feed]struct{}{}
	h.lanes.byOwner, h.lanes.costs = map[Owner]*Hub{}, map[Owner]int{}
	h.progress.Store(&progress{})
	return h
}

// Resource is what the hub serves.
func (h *Hub) Resource() *cache.Resource { return h.resource }

// Stats are the hub's counters.
func (h *Hub) Stats() *Stats { return h.stats }

// Feeds is the number of distinct selectors and encodings that are being followed, here and in
// lanes.
func (h *Hub) Feeds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.mu.feeds)
	for _, l := range h.lanes.byOwner {
		n += l.Feeds()
	}
	return n
}

// Lag is how many log entries the hub has yet to dispatch.
func (h *Hub) Lag() uint64 {
	head, done := h.resource.Log().Head(), h.progress.Load().position
	return head - min(head, done)
}

// Progress is a watchdog.ProgressFunc: the hub works while it has entries to dispatch.
func (h *Hub) Progress() (turns uint64, working bool) {
	return h.stats.Events.Load() + h.progress.Load().position, h.resource.IsReady() && h.Lag() > 0
}

// Run dispatches until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	defer func() { h.accountBytes(-h.feedBytes) }()
	defer h.endLanes()
	for {
		changed := h.resource.Changed()
		h.Dispatch()
		select {
		case <-changed:
		case <-ctx.Done():
			h.Dispatch() // what was appended before the end still reaches the feeds
			return nil
		}
	}
}

// Dispatch brings the feeds to the head of the log, and wakes their streams once. It is what Run
// does at every change; only one goroutine may call either.
func (h *Hub) Dispatch() { h.dispatch(noLimit) }

// noLimit is more entries than a log has.
const noLimit = math.MaxUint64

// dispatch is Dispatch for so many entries at most. It reports whether there are more.
func (h *Hub) dispatch(most uint64) (more bool) {
	if !h.resource.IsReady() {
		return false
	}
	began := time.Now()
	done := *h.progress.Load()
	snapshot := h.resource.Snapshot()
	h.syncIndex(done.position)
	h.syncLowMemory(done.position)
	if done.position < h.resource.Log().First() {
		h.restartFeeds(snapshot)
		return false
	}
	head := h.resource.Log().Head()
	end, inSeam := done.position+min(head-done.position, most), false
	for done.position < end || inSeam && done.position < head {
		e, ok := h.resource.Log().EntryAt(done.position)
		if !ok {
			h.stats.Overruns.Add(1)
			h.restartFeeds(h.resource.Snapshot())
			return false
		}
		done.position, done.completeRV = done.position+1, e.CompleteRV
		inSeam = e.Seam.IsOpen() // where progress never ends
		h.dispatchEntry(e, done.position)
	}
	h.publishProgress(done)
	if h.parent == nil && time.Since(began) > stallThreshold {
		h.stats.DispatchStalls.Add(1)
	}
	return done.position < head
}

// syncIndex brings the index up to date with the feeds that came and left. New feeds start at a log
// position. The lock is held for no more than the lists: to index a feed costs what its selector
// demands, and the writers wait for the lock, also for that of a lane.
func (h *Hub) syncIndex(position uint64) {
	h.mu.Lock()
	left, joined := h.mu.leftFeeds, h.mu.newFeeds
	if len(left) > 0 {
		h.mu.leftFeeds = nil
	}
	if len(joined) > 0 {
		h.mu.newFeeds = map[*Feed]struct{}{}
	} else {
		joined = nil // the map is filled by others from now on
	}
	h.mu.Unlock()
	for _, f := range left {
		h.index.remove(f)
		h.accountBytes(-f.keptBytes)
	}
	for f := range joined { // one that is released meanwhile is among those that have left, next time
		f.activate(position)
		h.index.add(f)
	}
}

// dispatchEntry adds an entry to the feeds that it concerns; next is the log position after it. The
// end of a seam concerns all.
func (h *Hub) dispatchEntry(e *cache.Entry, next uint64) {
	h.frames.reset(h.resource.BookmarkTemplate())
	feeds := h.index.find(&e.Event)
	if e.Seam == cache.SeamEnd {
		feeds = h.index.all
	}
	h.countEvaluations(len(feeds))
	copied, size := 0, 0
	if o := e.Object(); o != nil {
		size = o.Size()
	}
	for _, f := range feeds {
		if h.addToFeed(f, e, next, copied < copiedBytesLimit) {
			copied += size
		}
	}
	if h.parent == nil {
		h.stats.Events.Add(1)
	}
}

// addToFeed adds an entry to one feed that it may concern, and reports whether that made a frame.
// Without room for copies a feed of few streams leaves the entry to the log.
func (h *Hub) addToFeed(f *Feed, e *cache.Entry, next uint64, hasRoom bool) (added bool) {
	before, isListed := f.keptBytes, f.mustWake
	if f.hasFewStreams() && (!hasRoom || h.inLowMemory || h.isExhausted()) {
		f.skipEntry(e, next)
	} else if added = f.add(e, next, &h.frames); added {
		h.stats.Frames.Add(1)
		h.stats.Shares.Add(uint64(f.holders.Load())) // #nosec G115 -- never negative
	}
	h.accountBytes(f.keptBytes - before)
	if f.mustWake && !isListed {
		h.feedsToWake = append(h.feedsToWake, f)
	}
	return added
}

// copiedBytesLimit is how many bytes of one event are copied into feeds. An object has up to a
// megabyte, and each distinct selector has its own copy; beyond this, feeds of few streams leave
// the event to the log.
const copiedBytesLimit = 8 << 20

// countEvaluations counts selectors that are evaluated.
func (h *Hub) countEvaluations(selectors int) {
	counter := &h.stats.SelectorEvaluations
	if h.parent != nil {
		counter = &h.stats.LaneSelectorEvaluations
	}
	counter.Add(uint64(selectors)) // #nosec G115 -- not negative
}

// restartFeeds gives up on what lies between the hub and the snapshot: feeds start over there.
// Their cursors read the log, or expire there.
func (h *Hub) restartFeeds(s *cache.Snapshot) {
	for _, f := range h.index.all {
		f.restart(s.Next)
	}
	h.accountBytes(-h.feedBytes)
	h.feedsToWake = append(h.feedsToWake[:0], h.index.all...)
	h.publishProgress(progress{position: s.Next, completeRV: s.RV})
}

// publishProgress makes frames visible first and progress second: a cursor that sees the progress
// finds the frames. Only the streams of feeds that got frames are woken; the others look at
// progress when a bookmark is due.
func (h *Hub) publishProgress(done progress) {
	for _, f := range h.feedsToWake {
		f.publish()
	}
	h.progress.Store(&done)
	for _, f := range h.feedsToWake {
		f.wake()
	}
	clear(h.feedsToWake) // nothing is held that is removed later
	h.feedsToWake = h.feedsToWake[:0]
}
