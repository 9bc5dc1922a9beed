package fanout

import (
	"context"
	"sync"

	"spillway/internal/object"
)

// Owner is the user, or the address, that a watch is counted for. The empty Owner is the process
// itself: its selectors are not bounded.
type Owner string

const (
	// ownerCostLimit bounds the cost of one owner's feeds in a hub: 240 of one term each, 2,048 single
	// values, or 15 of 256 terms.
	ownerCostLimit = 4096
	// hubCostLimit bounds that of all owners' feeds.
	hubCostLimit = 16 * ownerCostLimit
	// feedCost is what a feed costs besides its terms: a look at the event, and a copy of its frame.
	feedCost = 16
	// indexedFeedCost is the cost of a feed that stands in the index under all that it demands: an
	// event finds few of them.
	indexedFeedCost = 2
	// laneRunEvents is how many events a lane dispatches before another lane has its turn.
	laneRunEvents = 64
)

// costOf is what a selector's feed costs the dispatcher at worst. Feeds that select by scope alone
// cost nothing here: an event concerns one of them for each encoding.
func costOf(sel object.Selector) int {
	switch {
	case sel.ScopeOnly():
		return 0
	case sel.Single():
		return indexedFeedCost
	}
	return feedCost + sel.Weight()
}

// LaneLimiter bounds how many lanes dispatch at the same time, over all hubs that share it, so that
// owners of costly selectors do not take all processors from the hubs. The nil LaneLimiter has no
// bound.
type LaneLimiter struct{ turns chan struct{} }

// NewLaneLimiter lets so many lanes dispatch at the same time.
func NewLaneLimiter(most int) *LaneLimiter {
	return &LaneLimiter{turns: make(chan struct{}, max(1, most))}
}

// SetLaneLimiter makes the hub's lanes take turns with those of others. It is called before the hub
// runs.
func (h *Hub) SetLaneLimiter(l *LaneLimiter) { h.laneLimiter = l }

// run dispatches a run in a turn, and reports whether there is more.
func (l *LaneLimiter) run(dispatch func() bool) bool {
	if l != nil {
		l.turns <- struct{}{}
		defer func() { <-l.turns }()
	}
	return dispatch()
}

// lanes are those of one hub. What an event costs the dispatcher is the selectors that it
// evaluates, and their frames. Clients choose both, and all clients of a resource wait for the
// dispatcher. So the cost of each owner's feeds in the hub is bounded, and the cost of all. Feeds
// beyond that are in a lane of the owner's: a Hub of its own on the same log, with its own
// goroutine, index and feeds. A lane that cannot keep up delays its owner alone.
//
// A lane is the same code as the hub and sees the same log, so it shows the same frames. Nothing
// moves from one to the other: where a feed is dispatched is decided when it is made.
type lanes struct {
	// Guarded by the hub's mu.
	byOwner   map[Owner]*Hub
	costs     map[Owner]int // of the owner's feeds in the hub itself
	totalCost int
	ended     bool // neither the hub nor a lane dispatches any more

	running sync.WaitGroup
}

// hasRoomForLocked reports that there is room in the hub itself for a feed of the owner's.
func (h *Hub) hasRoomForLocked(owner Owner, sel object.Selector) bool {
	cost := costOf(sel)
	if owner == "" || cost == 0 {
		return true
	}
	return sel.Light() && h.lanes.costs[owner]+cost <= ownerCostLimit && h.lanes.totalCost+cost <= hubCostLimit
}

// addCostLocked counts the cost of a feed in, or out again if it is negative.
func (h *Hub) addCostLocked(owner Owner, cost int) {
	if owner == "" || cost == 0 {
		return
	}
	h.lanes.totalCost += cost
	if h.lanes.costs[owner] += cost; h.lanes.costs[owner] == 0 {
		delete(h.lanes.costs, owner)
	}
}

// laneOfLocked is the owner's lane, which is made if it is not there.
func (h *Hub) laneOfLocked(owner Owner) *Hub {
	if l := h.lanes.byOwner[owner]; l != nil {
		return l
	}
	l := newHub(h.resource)
	l.parent, l.owner, l.budget, l.laneLimiter, l.stats = h, owner, h.budget, h.laneLimiter, h.stats
	l.progress.Store(h.progress.Load()) // what lies below is read from the log
	l.lowMemory.Store(h.lowMemory.Load())
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.bytesLimit = cancel, laneBytesLimit
	h.lanes.byOwner[owner] = l
	if h.lanes.ended {
		cancel() // its cursors read the log
		return l
	}
	h.lanes.running.Go(func() { l.runLane(ctx) })
	return l
}

// runLane dispatches until ctx ends.
func (h *Hub) runLane(ctx context.Context) {
	defer func() { h.accountBytes(-h.feedBytes) }()
	for {
		changed := h.resource.Changed()
		for h.laneLimiter.run(func() bool { return h.dispatch(laneRunEvents) }) {
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			h.dispatch(noLimit) // as Run does
			return
		}
	}
}

// dismissLaneLocked ends a lane without subscribers. The lane is not locked.
func (h *Hub) dismissLaneLocked(l *Hub) {
	if l.Feeds() == 0 {
		delete(h.lanes.byOwner, l.owner)
		l.cancel()
	}
}

// endLanes ends all lanes once they have dispatched what is in the log.
func (h *Hub) endLanes() {
	h.mu.Lock()
	h.lanes.ended = true
	for _, l := range h.lanes.byOwner {
		l.cancel()
	}
	h.mu.Unlock()
	h.lanes.running.Wait()
}

// eachLane calls f for the hub's lanes.
func (h *Hub) eachLane(f func(*Hub)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lanes.byOwner {
		f(l)
	}
}

// Lanes is how many owners have a lane.
func (h *Hub) Lanes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lanes.byOwner)
}

// LaneLag is how many log entries the lane that is farthest behind has yet to dispatch.
func (h *Hub) LaneLag() (most uint64) {
	h.eachLane(func(l *Hub) { most = max(most, l.Lag()) })
	return most
}

// OwnerView is a hub as an owner's watches use it.
type OwnerView struct {
	hub   *Hub
	owner Owner
}

// ViewFor is the hub for an owner's watches.
func (h *Hub) ViewFor(owner Owner) OwnerView {
	if h.parent != nil {
		h = h.parent
	}
	return OwnerView{hub: h, owner: owner}
}
