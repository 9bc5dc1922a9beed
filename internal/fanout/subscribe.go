package fanout

import "spillway/internal/object"

// subscribe returns the feed of a selector and encoding, and its dispatcher: the hub, or a lane of
// the owner's. The feed is held until releaseFeed.
func (h *Hub) subscribe(owner Owner, sel object.Selector, enc object.Encoding) (*Hub, *Feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.feeds[feedKeyOf(sel, enc)] != nil || h.hasRoomForLocked(owner, sel) {
		return h, h.holdFeedLocked(owner, sel, enc)
	}
	l := h.laneOfLocked(owner)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l, l.holdFeedLocked(owner, sel, enc)
}

// holdFeedLocked holds the feed of a selector and encoding, which is made if it is not there.
func (h *Hub) holdFeedLocked(owner Owner, sel object.Selector, enc object.Encoding) *Feed {
	key := feedKeyOf(sel, enc)
	f := h.mu.feeds[key]
	if f == nil {
		f = newFeed(key, sel)
		f.owner, f.cost, f.inLane = owner, costOf(sel), h.parent != nil
		h.addCostLocked(owner, f.cost)
		h.mu.feeds[key] = f
		h.mu.newFeeds[f] = struct{}{}
	}
	f.holders.Add(1)
	return f
}

// releaseFeed gives a feed back; the last holder removes it, and with the last feed a lane ends.
func (h *Hub) releaseFeed(f *Feed) {
	if h.parent != nil {
		h.parent.mu.Lock()
		defer h.parent.mu.Unlock()
		defer h.parent.dismissLaneLocked(h)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.holders.Add(-1) > 0 {
		return
	}
	delete(h.mu.feeds, f.key)
	h.addCostLocked(f.owner, -f.cost)
	if _, isNew := h.mu.newFeeds[f]; isNew {
		delete(h.mu.newFeeds, f)
		return
	}
	h.mu.leftFeeds = append(h.mu.leftFeeds, f)
}
