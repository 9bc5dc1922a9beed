package backfill

import (
	"context"
	"sync"
	"sync/atomic"

	"spillway/internal/fanout"
)

// WatchLimit bounds the watches upstream of all resources, and the bytes that they have read and
// clients have not taken yet. One owner has half of the watches at most, and every watch may hold a
// little, so that an owner of many selectors cannot starve all others.
type WatchLimit struct {
	turns         chan struct{} // a token for each watch that is open
	minWatchBytes int64         // that one watch may hold in any case
	maxWatchBytes int64         // that one watch may hold
	maxTotalBytes int64         // that all of them may hold, but for those below minWatchBytes
	heldBytes     atomic.Int64  // by all of them

	mu struct {
		sync.Mutex
		turnCounts map[fanout.Owner]*turnCount
	}
}

// turnCount counts the turns of one owner, as long as one of its watches waits for a turn or has
// one.
type turnCount struct {
	turns chan struct{} // a token for each watch that is open, or waits for WatchLimit.turns alone
	users int           // watches; guarded by WatchLimit.mu
}

// What one watch and all of them hold at most for clients that have not taken it yet.
const (
	watchBytes = 8 << 20
	totalBytes = 64 << 20
)

// NewWatchLimit allows so many watches at a time.
func NewWatchLimit(watches int) *WatchLimit {
	l := &WatchLimit{
		turns: make(chan struct{}, watches), minWatchBytes: totalBytes / 2 / int64(max(1, watches)),
		maxWatchBytes: watchBytes, maxTotalBytes: totalBytes,
	}
	l.mu.turnCounts = map[fanout.Owner]*turnCount{}
	return l
}

// acquire waits for a turn of an owner's.
func (l *WatchLimit) acquire(ctx context.Context, owner fanout.Owner) error {
	s := l.enter(owner)
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		l.leave(owner, s)
		return context.Cause(ctx)
	}
	select {
	case l.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-s.turns
		l.leave(owner, s)
		return context.Cause(ctx)
	}
}

// release gives a turn back.
func (l *WatchLimit) release(owner fanout.Owner) {
	<-l.turns
	l.mu.Lock()
	s := l.mu.turnCounts[owner]
	l.mu.Unlock()
	<-s.turns
	l.leave(owner, s)
}

// enter is the turnCount of an owner. The empty owner, whose watches serve all clients that select
// by scope alone, may have all turns.
func (l *WatchLimit) enter(owner fanout.Owner) *turnCount {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.turnCounts[owner]
	if s == nil {
		most := cap(l.turns)
		if owner != "" {
			most = (most + 1) / 2
		}
		s = &turnCount{turns: make(chan struct{}, most)}
		l.mu.turnCounts[owner] = s
	}
	s.users++
	return s
}

func (l *WatchLimit) leave(owner fanout.Owner, s *turnCount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.mu.turnCounts, owner)
	}
}

// isFull reports that a watch which holds some bytes has no room for more.
func (l *WatchLimit) isFull(held, size int64) bool {
	return held+size > l.maxWatchBytes || held+size > l.minWatchBytes && l.heldBytes.Load()+size > l.maxTotalBytes
}
