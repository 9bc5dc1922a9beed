package fanout

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/cache"
	"spillway/internal/object"
)

// Past is what upstream did to the resource before the log begins.
type Past interface {
	// Begin finds an apiserver that is to tell of it. rv is how far its storage was, at some moment since the call.
	Begin(ctx context.Context) (rv uint64, t Telling, err error)
}

// Telling is one upstream watch, of an apiserver that was just made current (design D7). One goroutine uses it.
type Telling interface {
	// Watch begins to tell what a selector sees of what happened after from, for about three seconds.
	Watch(ctx context.Context, sel object.Selector, from uint64) error
	// Next is the next event; without an object it is a bookmark. io.EOF is the end of the watch, which says nothing.
	Next() (t object.Type, o *object.Object, rv uint64, err error)
	Close()
}

// Backfills let clients resume from before the log begins (design D6): they are told by upstream what happened up to there, and the log
// goes on. So a client that comes back to a proxy that was restarted, or that it has never seen, need not list anew.
//
// Those who select nothing but names and namespaces share watches of everything, from the smallest resourceVersion among them, for what
// they see of an object never changes. All other selectors are upstream's to apply: what an object was before a change, nobody here knows.
type Backfills struct {
	// Static after construction.
	hub   *Hub
	past  Past
	limit *BackfillLimit
	ctx   context.Context // of the watches
	stop  context.CancelFunc

	open, opened atomic.Int64

	mu struct {
		sync.Mutex
		closed     bool
		retellings map[string][]*retelling // by selector; those that may still be joined
	}
	running sync.WaitGroup
}

var (
	// ErrBackfillBusy says that it was not a client's turn in time. It had better come back later.
	ErrBackfillBusy = errors.New("too many clients are being told of the past")
	// ErrBackfillBehind says that a client did not keep up with what it was told. It can go on from where it is.
	ErrBackfillBehind = errors.New("the client did not keep up with what it was told of the past")

	errBackfillsClosed = errors.New("nobody is told of this past any more")
)

// NewBackfills makes what tells the clients of a hub of the past, within limits that it shares with others. Close it.
func NewBackfills(h *Hub, p Past, l *BackfillLimit) *Backfills {
	b := &Backfills{hub: h, past: p, limit: l}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.mu.retellings = map[string][]*retelling{}
	return b
}

// Close ends all watches, and returns when they have ended.
func (b *Backfills) Close() {
	b.mu.Lock()
	b.mu.closed = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
}

// Watches is how many upstream watches are open, and how many have been opened.
func (b *Backfills) Watches() (open, opened int64) { return b.open.Load(), b.opened.Load() }

// Join subscribes a client of an owner's that is complete through rv to the events after it, once
// it is its turn. Close what it returns. If the turn does not come before ctx ends, the error is
// ErrBackfillBusy. It returns nil if that is not what the client lacks: the log has everything, or
// neither has upstream (see Hub.Resume).
func (b *Backfills) Join(ctx context.Context, owner Owner, rv uint64, sel object.Selector) (*Backfill, error) {
	log := b.hub.resource.Log()
	f := &Backfill{backfills: b, owner: owner, voids: log.Voids(), through: rv, selector: sel}
	_, err := log.Find(rv)
	var expired *cache.ExpiredError
	if !errors.As(err, &expired) || !expired.Missing() || rv == 0 {
		return nil, nil
	}
	f.target = expired.Oldest
	if err := f.join(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// enter lets a client listen to a retelling that can still tell it everything, or to a new one.
func (b *Backfills) enter(f *Backfill) (*retelling, error) {
	key, sel := f.selector.Key(), f.selector
	if sel.Fixed() {
		key, sel = "", object.Selector{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return nil, errBackfillsClosed
	}
	for _, r := range b.mu.retellings[key] {
		if r.admit(f) {
			return r, nil
		}
	}
	r := newRetelling(b, key, sel)
	if !r.shared() {
		r.owner = f.owner
	}
	if !r.admit(f) { // history has become void in this moment
		r.cancel()
		return nil, errBackfillsClosed
	}
	b.mu.retellings[key] = append(b.mu.retellings[key], r)
	b.running.Go(r.run)
	return r, nil
}

// forget lets nobody else join a retelling.
func (b *Backfills) forget(r *retelling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.DeleteFunc(b.mu.retellings[r.key], func(other *retelling) bool { return other == r })
	if len(left) == 0 {
		delete(b.mu.retellings, r.key)
		return
	}
	b.mu.retellings[r.key] = left
}

// BackfillLimit bounds the backfills at a time, over all resources: the watches upstream, and the bytes that have been
// read and not yet been taken. One owner has half of the watches at most, and every watch may hold a little, or one
// owner of many selectors would starve all others.
type BackfillLimit struct {
	turns             chan struct{} // a token for each watch that is open
	least, each, most int64         // bytes that one watch may hold in any case, and at most, and all of them
	held              atomic.Int64  // by all of them

	mu struct {
		sync.Mutex
		shares map[Owner]*share
	}
}

// share is an owner's, while a client of the owner waits for a turn or has one.
type share struct {
	turns chan struct{}
	users int // guarded by BackfillLimit.mu
}

// What a client has not taken yet is held up to so many bytes, of one watch and of all of them.
const (
	heldByEach = 8 << 20
	heldByAll  = 64 << 20
)

// NewBackfillLimit allows so many watches at a time.
func NewBackfillLimit(watches int) *BackfillLimit {
	l := &BackfillLimit{turns: make(chan struct{}, watches), least: heldByAll / 2 / int64(max(1, watches)),
		each: heldByEach, most: heldByAll}
	l.mu.shares = map[Owner]*share{}
	return l
}

// acquire waits for a turn of an owner's.
func (l *BackfillLimit) acquire(ctx context.Context, owner Owner) error {
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
func (l *BackfillLimit) release(owner Owner) {
	<-l.turns
	l.mu.Lock()
	s := l.mu.shares[owner]
	l.mu.Unlock()
	<-s.turns
	l.leave(owner, s)
}

// enter is the share of an owner. The empty owner, whose watches are for all that select by scope
// alone, may have all turns.
func (l *BackfillLimit) enter(owner Owner) *share {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.shares[owner]
	if s == nil {
		most := cap(l.turns)
		if owner != "" {
			most = (most + 1) / 2
		}
		s = &share{turns: make(chan struct{}, most)}
		l.mu.shares[owner] = s
	}
	s.users++
	return s
}

func (l *BackfillLimit) leave(owner Owner, s *share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.mu.shares, owner)
	}
}

// full reports that a watch which holds some bytes has no room for more.
func (l *BackfillLimit) full(holds, size int64) bool {
	return holds+size > l.each || holds+size > l.least && l.held.Load()+size > l.most
}

// turnWait is how long a client that has been told something already waits for its turn to be told the rest.
const turnWait = 30 * time.Second
