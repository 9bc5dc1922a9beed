// Package fanout turns one resource's log into many filtered, framed feeds, and gives every client a cursor in them.
//
// Invariant: nothing is ever queued for a client. Clients pull: what they have not taken costs nothing, and neither the
// hub nor anything upstream of it can wait for one of them.
package fanout

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// Hub reads one resource's log and hands each event to the feeds whose selectors it concerns.
//
// One goroutine dispatches (Run). It takes no lock: the feeds that exist are an immutable map that subscribers replace.
// Pushing into a queue per client, as kube-apiserver does, would make it decide what to do with a full queue; here there
// is none.
type Hub struct {
	// Static after construction.
	resource *cache.Resource

	// Written by the dispatcher, read by all.
	progress atomic.Pointer[progress]
	stats    Stats

	// The dispatcher's.
	scratch []byte

	// Replaced under mu, read by the dispatcher.
	feeds atomic.Pointer[feedMap]
	mu    sync.Mutex
}

// progress is how far the hub has dispatched: every event below position is in its feeds, which makes them complete
// through a resourceVersion. Positions never lie inside a seam, since a seam is appended as one.
type progress struct{ position, through uint64 }

// feedMap is the feeds that exist. Immutable.
type feedMap map[feedKey]*Feed

// Stats count what the hub did, since it was made.
type Stats struct {
	Events     atomic.Uint64 // dispatched
	Frames     atomic.Uint64 // made for feeds: once each, however many streams share it
	Replayed   atomic.Uint64 // frames made for single cursors that read the log
	Stalls     atomic.Uint64 // dispatches of one batch that took longer than stallThreshold: something made the hub wait
	Lapped     atomic.Uint64 // times the log moved past the hub
	FeedLapped atomic.Uint64 // times a feed moved past a cursor, which went on from the log
}

// stallThreshold is far above what a batch costs and far below what a client may stall.
const stallThreshold = time.Second

// NewHub makes a hub that follows the resource's log once it Runs.
func NewHub(r *cache.Resource) *Hub {
	h := &Hub{resource: r}
	h.feeds.Store(&feedMap{})
	h.progress.Store(&progress{})
	return h
}

// Resource is what the hub serves.
func (h *Hub) Resource() *cache.Resource { return h.resource }

// Stats are the hub's counters.
func (h *Hub) Stats() *Stats { return &h.stats }

// Feeds is the number of distinct selectors and encodings that are being followed.
func (h *Hub) Feeds() int { return len(*h.feeds.Load()) }

// Lag is how many log entries the hub has yet to dispatch.
func (h *Hub) Lag() uint64 {
	head, done := h.resource.Log().Head(), h.progress.Load().position
	return head - min(head, done)
}

// Run dispatches until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	for {
		changed := h.resource.Changed()
		h.Dispatch()
		select {
		case <-changed:
		case <-ctx.Done():
			h.Dispatch() // what was appended before the end is still told
			return nil
		}
	}
}

// Dispatch brings the feeds to the head of the log, and wakes their streams once. It is what Run does at every change; only
// one goroutine may call either.
func (h *Hub) Dispatch() {
	if !h.resource.Ready() {
		return
	}
	began := time.Now()
	done := *h.progress.Load()
	feeds := *h.feeds.Load()
	snapshot := h.resource.Snapshot()
	if done.position < h.resource.Log().First() {
		h.restart(feeds, snapshot)
		return
	}
	for _, f := range feeds {
		f.activate(done.position)
	}
	head := h.resource.Log().Head()
	for done.position < head {
		e, ok := h.resource.Log().At(done.position)
		if !ok {
			h.stats.Lapped.Add(1)
			h.restart(feeds, h.resource.Snapshot())
			return
		}
		done.position, done.through = done.position+1, e.Through
		for _, f := range feeds {
			var added bool
			if added, h.scratch = f.add(e, done.position, h.resource.Template(), h.scratch); added {
				h.stats.Frames.Add(1)
			}
		}
		h.stats.Events.Add(1)
	}
	h.publish(feeds, done)
	if time.Since(began) > stallThreshold {
		h.stats.Stalls.Add(1)
	}
}

// restart gives up on what lies between the hub and the snapshot: feeds start over there. Their cursors go on from the
// log, or learn from it that they have expired.
func (h *Hub) restart(feeds feedMap, s *cache.Snapshot) {
	for _, f := range feeds {
		f.restart(s.Next)
	}
	h.publish(feeds, progress{position: s.Next, through: s.RV})
}

// publish makes frames visible first and progress second: who sees the progress finds the frames. Only the streams of
// feeds that got frames are woken; the others look at progress when a bookmark is due.
func (h *Hub) publish(feeds feedMap, done progress) {
	for _, f := range feeds {
		f.publish()
	}
	h.progress.Store(&done)
	for _, f := range feeds {
		f.wake()
	}
}

// subscribe returns the feed of a selector and encoding, and holds it until release.
func (h *Hub) subscribe(sel object.Selector, enc object.Encoding) *Feed {
	key := feedKey{selector: sel.Key(), encoding: enc}
	h.mu.Lock()
	defer h.mu.Unlock()
	feeds := *h.feeds.Load()
	f := feeds[key]
	if f == nil {
		f = newFeed(key, sel, enc)
		feeds = maps.Clone(feeds)
		feeds[key] = f
		h.feeds.Store(&feeds)
	}
	f.holders++
	return f
}

// release gives a feed back; the last holder removes it.
func (h *Hub) release(f *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.holders--; f.holders > 0 {
		return
	}
	feeds := maps.Clone(*h.feeds.Load())
	delete(feeds, f.key)
	h.feeds.Store(&feeds)
}
