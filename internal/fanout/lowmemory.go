package fanout

import (
	"sync/atomic"

	"spillway/internal/cache"
)

// ByteBudget bounds the bytes that feeds keep, over all hubs that share it. Once it is used up,
// feeds with few streams keep no frames. Clients choose how many feeds there are and how much each
// sees; a bound that is checked where frames are made does not depend on a guard's interval.
type ByteBudget struct {
	limit int64
	used  atomic.Int64
}

// NewByteBudget makes a budget of limit bytes.
func NewByteBudget(limit int64) *ByteBudget { return &ByteBudget{limit: limit} }

// isExhausted reports that no byte is left. The nil ByteBudget has no limit.
func (b *ByteBudget) isExhausted() bool { return b != nil && b.used.Load() >= b.limit }

// SetBudget makes the hub's feeds share a budget with those of others. It is called before the hub
// runs.
func (h *Hub) SetBudget(b *ByteBudget) { h.budget = b }

// accountBytes counts bytes that feeds keep now, or, below 0, no longer.
func (h *Hub) accountBytes(bytes int64) {
	h.feedBytes += bytes
	if h.budget != nil && bytes != 0 {
		h.budget.used.Add(bytes)
	}
}

// laneBytesLimit is how many bytes the feeds of a lane keep at most, whatever is left of the shared
// budget: the lane's user chooses how many feeds there are.
const laneBytesLimit = 128 << 20

// isExhausted reports that feeds with few streams keep no frames.
func (h *Hub) isExhausted() bool {
	return h.budget.isExhausted() || h.parent != nil && h.feedBytes >= h.bytesLimit
}

// sharedStreamsMin is how many streams a feed must have to keep frames while memory is short. The
// frames that a feed keeps grow with its streams and are bounded, so for each of that many streams
// they are few.
const sharedStreamsMin = 64

// SetLowMemory makes feeds with few streams keep no frames while memory is short, or as many as
// usual again. Their cursors read the log instead: the same frames, made once for each stream and
// not once for all.
func (h *Hub) SetLowMemory(on bool) {
	if h.lowMemory.Swap(on) != on {
		h.eachLane(func(l *Hub) { l.lowMemory.Store(on) })
		h.resource.Signal().Wake() // so that it need not wait for the next event
	}
}

// syncLowMemory drops the frames of feeds with few streams, once, after SetLowMemory was called.
// All entries below position are dispatched.
func (h *Hub) syncLowMemory(position uint64) {
	was := h.inLowMemory
	if h.inLowMemory = h.lowMemory.Load(); !h.inLowMemory || was {
		return
	}
	for _, f := range h.index.all {
		if f.hasFewStreams() && f.tail != nil {
			h.accountBytes(-f.keptBytes)
			f.restart(position)
			h.feedsToWake = append(h.feedsToWake, f)
		}
	}
}

// replayBytes is how many frames a cursor that reads the log makes at once: they are held for its
// client alone until the client takes them. While memory is short that is one.
func (h *Hub) replayBytes() int {
	if h.lowMemory.Load() {
		return 1
	}
	return replayRunBytes
}

func (f *Feed) hasFewStreams() bool { return f.holders.Load() < sharedStreamsMin }

// skipEntry keeps no frame of an entry: the feed's streams read it from the log.
func (f *Feed) skipEntry(e *cache.Entry, next uint64) {
	if _, _, seen := f.selector.EventFor(&e.Event); seen || e.Seam == cache.SeamEnd && f.encoding.Bookmarks {
		f.restart(next)
	}
}
