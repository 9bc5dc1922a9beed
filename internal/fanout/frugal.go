package fanout

import (
	"sync/atomic"

	"spillway/internal/cache"
)

// Room bounds the bytes that feeds keep, over all hubs that share it. Where there is none left,
// feeds of few streams go on without. How many feeds there are, and how much each sees, is up to
// clients; a bound that is held where frames are made needs no time to notice.
type Room struct {
	most int64
	held atomic.Int64
}

// NewRoom makes a room for so many bytes.
func NewRoom(most int64) *Room { return &Room{most: most} }

// full reports that there is no room left. The nil Room is never full.
func (r *Room) full() bool { return r != nil && r.held.Load() >= r.most }

// Share makes the hub's feeds share a room with those of others. It is called before the hub runs.
func (h *Hub) Share(r *Room) { h.room = r }

// hold counts bytes that feeds keep now, or no longer.
func (h *Hub) hold(bytes int64) {
	h.held += bytes
	if h.room != nil && bytes != 0 {
		h.room.held.Add(bytes)
	}
}

// laneRoom is how many bytes the feeds of a lane keep at most, whatever room there is for all: its
// owner chooses how many there are.
const laneRoom = 128 << 20

// full reports that feeds of few streams go on without memory.
func (h *Hub) full() bool { return h.room.full() || h.parent != nil && h.held >= h.most }

// crowd is how many streams a feed must have to be worth its memory while that is short. What it
// keeps of its frames grows with them and is bounded, so that of a feed of so many it is little for
// each.
const crowd = 64

// SetLowMemory makes feeds with few streams keep no frames while memory is short, or as many as
// usual again. Their cursors read the log instead: the same frames, made once for each stream and
// not once for all.
func (h *Hub) SetLowMemory(on bool) {
	if h.lowMemory.Swap(on) != on {
		h.eachLane(func(l *Hub) { l.lowMemory.Store(on) })
		h.resource.Signal().Wake() // so that it need not wait for the next event
	}
}

// save lets go of what feeds of few streams hold, once, when that begins to be wanted. Everything
// below a position is dispatched.
func (h *Hub) save(position uint64) {
	was := h.saving
	if h.saving = h.lowMemory.Load(); !h.saving || was {
		return
	}
	for _, f := range h.index.all {
		if f.lonely() && f.tail != nil {
			h.hold(-f.size)
			f.restart(position)
			h.touched = append(h.touched, f)
		}
	}
}

// replayed is how much a cursor makes at once that reads the log: what a client does not take of it
// is held for that client alone. While memory is short that is one frame.
func (h *Hub) replayed() int {
	if h.lowMemory.Load() {
		return 1
	}
	return replayRun
}

// lonely reports that the feed has few streams.
func (f *Feed) lonely() bool { return f.holders.Load() < crowd }

// pass leaves a log entry that the feed's streams see to the log.
func (f *Feed) pass(e *cache.Entry, next uint64) {
	if _, _, seen := f.selector.Seen(&e.Event); seen || e.Seam == cache.SeamEnd && f.encoding.Bookmarks {
		f.restart(next)
	}
}
