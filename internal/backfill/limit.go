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
	turns             chan struct{} // a token for each watch that is open
	least, each, most int64         // bytes that one watch may hold in any case, and at most, and all of them
	held              atomic.Int64  // by all of them

	mu struct {
		sync.Mutex
		shares map[fanout.Owner]*turnCount
	}
}

// turnCount is an owner's, while a client of the owner waits for a turn or has one.
type turnCount struct {
	turns chan struct{}
	users int // guarded by WatchLimit.mu
}

// What one watch and all of them hold at most for clients that have not taken it yet.
const (
	watchBytes = 8 << 20
	totalBytes = 64 << 20
)

// NewWatchLimit allows so many watches at a time.
func NewWatchLimit(watches int) *WatchLimit {
	l := &WatchLimit{turns: make(chan struct{}, watches), least: totalBytes / 2 / int64(max(1, watches)),
		each: watchBytes, most: totalBytes}
	l.mu.shares = map[fanout.Owner]*turnCount{}
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
	s := l.mu.shares[owner]
	l.mu.Unlock()
	<-s.turns
	l.leave(owner, s)
}

// enter is the turnCount of an owner. The empty owner, whose watches serve all clients that select
// by scope alone, may have all turns.
func (l *WatchLimit) enter(owner fanout.Owner) *turnCount {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.shares[owner]
	if s == nil {
		most := cap(l.turns)
		if owner != "" {
			most = (most + 1) / 2
		}
		s = &turnCount{turns: make(chan struct{}, most)}
		l.mu.shares[owner] = s
	}
	s.users++
	return s
}

func (l *WatchLimit) leave(owner fanout.Owner, s *turnCount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.mu.shares, owner)
	}
}

// full reports that a watch which holds some bytes has no room for more.
func (l *WatchLimit) full(holds, size int64) bool {
	return holds+size > l.each || holds+size > l.least && l.held.Load()+size > l.most
}
