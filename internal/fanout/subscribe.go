package fanout

import "spillway/internal/object"

// subscribe returns the feed of a selector and encoding, and its dispatcher: the hub, or a lane of
// the owner's. It is held until release.
func (h *Hub) subscribe(owner Owner, sel object.Selector, enc object.Encoding) (*Hub, *Feed) {
	key := feedKey{selector: sel.Key(), encoding: enc}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.feeds[key] != nil || h.hasRoomFor(owner, sel) {
		return h, h.addFeed(key, owner, sel)
	}
	l := h.laneOf(owner)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l, l.addFeed(key, owner, sel)
}

// addFeed holds the feed of a key, which is made if it is not there. The hub is locked.
func (h *Hub) addFeed(key feedKey, owner Owner, sel object.Selector) *Feed {
	f := h.mu.feeds[key]
	if f == nil {
		f = newFeed(key, sel, key.encoding)
		f.owner, f.cost, f.inLane = owner, costOf(sel), h.parent != nil
		h.charge(f, 1)
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
		defer h.parent.dismissLane(h)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.holders.Add(-1) > 0 {
		return
	}
	delete(h.mu.feeds, f.key)
	h.charge(f, -1)
	if _, unknown := h.mu.newFeeds[f]; unknown {
		delete(h.mu.newFeeds, f)
		return
	}
	h.mu.leftFeeds = append(h.mu.leftFeeds, f)
}
