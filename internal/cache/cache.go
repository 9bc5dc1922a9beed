// Package cache holds the state and the recent history of one resource, as the API server reported
// them.
//
// Invariant: one snapshot and one log describe the same past. A reader that takes a Snapshot and
// then reads the Log from Snapshot.Next on misses nothing and sees nothing twice. So it reads
// history and live events in one way. The cache does not know its readers.
package cache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"spillway/internal/object"
	"spillway/internal/ring"
)

// Resource is the state and recent history of one resource. One goroutine applies changes; any
// number read, without locks.
//
// Every resourceVersion in it is the API server's (design D3). What the resource promises is
// CompleteRV: that everything the API server did to it up to that resourceVersion is in the log. A
// relist from the API server does not empty it: see Replace.
type Resource struct {
	// Static after construction.
	Info   *object.Resource
	limits HistoryLimits
	now    func() time.Time

	// Published by the applier, read by all.
	log              *Log
	snapshot         atomic.Pointer[Snapshot]
	bookmarkTemplate atomic.Pointer[object.Bookmark]
	changed          ring.Signal
	closed           atomic.Bool
	historyReset     atomic.Bool // see NoteHistoryReset
	exactSnapshots   exactSnapshots

	mu struct {
		// Held while a change is applied: by the reflector's goroutine, or by a proof that moves
		// progress.
		sync.Mutex
		tree         *btree.BTreeG[*object.Object]
		indexes      []index
		bytes        int64
		shortHistory bool   // see SetShortHistory
		generation   uint64 // see Generation
		greatestRV   uint64 // promised here, or known to be promised by the API server, in any generation
		upstreamRV   uint64 // where the API server was found in this generation; see NoteUpstreamRV
		relistRV     uint64 // CompleteRV when a complete state was requested; see BeginRelist
		relisting    bool   // the requested state has not arrived
	}
}

// New makes an empty resource, which is not ready until its first Replace. now is the clock that
// dates events.
func New(info *object.Resource, limits HistoryLimits, now func() time.Time) *Resource {
	r := &Resource{Info: info, limits: limits, now: now, log: newLog()}
	r.bookmarkTemplate.Store(object.NewBookmark(info))
	r.mu.tree, r.mu.indexes = newTree(), newIndexes(info)
	return r
}

// newTree makes a tree of objects in the API server's order (W-61). Its readers hold copies, hence
// no locks.
func newTree() *btree.BTreeG[*object.Object] {
	less := func(a, b *object.Object) bool { return a.Key < b.Key }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// IsReady reports whether the first complete state has arrived.
func (r *Resource) IsReady() bool { return r.snapshot.Load() != nil }

// Snapshot is the current state, nil until IsReady.
func (r *Resource) Snapshot() *Snapshot { return r.snapshot.Load() }

// Log is the recent history.
func (r *Resource) Log() *Log { return r.log }

// Changed returns a channel that closes at the next change, progress included. Take it before
// looking.
func (r *Resource) Changed() <-chan struct{} { return r.changed.Wait() }

// Signal wakes readers that wait for the next change.
func (r *Resource) Signal() *ring.Signal { return &r.changed }

// SetBookmarkTemplate says what bookmarks are made from until the API server sends one. It is
// called before the first change.
func (r *Resource) SetBookmarkTemplate(template *object.Bookmark) { r.bookmarkTemplate.Store(template) }

// BookmarkTemplate is what this resource's bookmarks are made from.
func (r *Resource) BookmarkTemplate() *object.Bookmark { return r.bookmarkTemplate.Load() }

// CompleteRV is the resourceVersion up to which everything the API server did is in the log and the
// snapshot; 0 until IsReady.
func (r *Resource) CompleteRV() uint64 {
	if s := r.snapshot.Load(); s != nil {
		return s.RV
	}
	return 0
}

// PromisedRV is the greatest resourceVersion that clients may hold of this history: CompleteRV, or
// where the API server was found beyond it, which a proof may have handed out. An API server
// that is below it, by a question sent afterwards, has another history.
func (r *Resource) PromisedRV() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.CompleteRV(), r.mu.upstreamRV)
}

// SnapshotAt is the state at exactly rv, or an error if history does not know it: an ExpiredError
// for an old one, and none is known above CompleteRV.
//
// Old states are not kept. The log holds both versions of every change, so SnapshotAt undoes
// changes from the present back to rv: that costs nothing without requests for old states, and a
// client that pages through a list shares the state made for its first page.
func (r *Resource) SnapshotAt(rv uint64) (*Snapshot, error) {
	now := r.snapshot.Load()
	if now == nil || rv > now.RV {
		return nil, ErrNotReached
	}
	if s := r.exactSnapshots.get(rv, now.generation); s != nil {
		return s, nil
	}
	s, err := r.rewindSnapshot(now, rv)
	if err != nil {
		return nil, err
	}
	r.exactSnapshots.put(s)
	return s, nil
}

// rewindSnapshot is the state at rv, found by undoing the changes in the log from then to now.
func (r *Resource) rewindSnapshot(now *Snapshot, rv uint64) (*Snapshot, error) {
	pos, err := r.log.Find(rv)
	if err != nil {
		return nil, err
	}
	if pos > now.Next {
		// Within one history rv is not after now: it has become void meanwhile.
		return nil, &ExpiredError{RequestedRV: rv, OldestRV: r.log.Floor()}
	}
	tree := now.copyTree()
	for p := now.Next; p > pos; p-- {
		e, ok := r.log.EntryAt(p - 1)
		if !ok {
			return nil, &ExpiredError{RequestedRV: rv, OldestRV: r.log.Floor()}
		}
		undo(tree, &e.Event)
	}
	return &Snapshot{RV: rv, Next: pos, Reached: rv, generation: now.generation, tree: tree}, nil
}

// Generation counts how often history was void, or held another representation than the API
// server's. Progress and states that were observed in another generation mean nothing.
func (r *Resource) Generation() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.generation
}

// IsCurrent reports whether a state belongs to the present history, in the present representation.
func (r *Resource) IsCurrent(s *Snapshot) bool { return s.generation == r.Generation() }

// Add applies a creation. What the API server has delivered before is ignored.
func (r *Resource) Add(o *object.Object) error { return r.set(o) }

// Update applies a change. What the API server has delivered before is ignored.
func (r *Resource) Update(o *object.Object) error { return r.set(o) }

func (r *Resource) set(o *object.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.RV <= r.CompleteRV() || !r.IsReady() {
		return nil
	}
	old, _ := r.mu.tree.Set(o)
	r.accountLocked(old, o)
	r.appendLocked(Entry{Event: object.Event{New: o, Old: old, RV: o.RV, At: r.now()}, CompleteRV: o.RV})
	r.publishLocked(o.RV)
	return nil
}

// Delete applies a deletion. last is the object's last state, at the resourceVersion of the
// deletion (W-104).
func (r *Resource) Delete(last *object.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last.RV <= r.CompleteRV() || !r.IsReady() {
		return nil
	}
	rv := last.RV
	if old, ok := r.mu.tree.Delete(last); ok {
		r.accountLocked(old, nil)
		r.appendLocked(Entry{Event: object.Event{Old: old, RV: rv, At: r.now()}, CompleteRV: rv})
	} else {
		r.appendLocked(Entry{Event: object.Event{RV: rv, At: r.now()}, CompleteRV: rv})
	}
	r.publishLocked(rv)
	return nil
}

// Bookmark records a bookmark that came on the stream that applies the changes, and keeps its
// template.
func (r *Resource) Bookmark(b *object.Bookmark, rv uint64) error {
	r.bookmarkTemplate.Store(b)
	r.Progress(rv, r.Generation())
	return nil
}

// Progress records that the API server did nothing more to the resource up to rv (W-111), as a
// proof found in the given generation. Progress that was observed in another generation is ignored,
// as is any since the API server was found to have another history.
func (r *Resource) Progress(rv, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rv <= r.CompleteRV() || !r.IsReady() || generation != r.mu.generation || r.historyReset.Load() {
		return
	}
	r.appendLocked(Entry{Event: object.Event{RV: rv, At: r.now()}, CompleteRV: rv})
	r.publishLocked(rv)
}

// NoteUpstreamRV records that the API server has reached rv, as found by a query that was sent in
// the given generation. A client that got rv from the API server since then got it of this history.
// That matters after history was void, because the API server has one counter for all resources. So
// clients of a quiet resource hold resourceVersions that its log has yet to reach, and that an
// earlier history may have promised as well.
func (r *Resource) NoteUpstreamRV(rv, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsReady() && generation == r.mu.generation {
		r.mu.greatestRV = max(r.mu.greatestRV, rv)
		r.mu.upstreamRV = max(r.mu.upstreamRV, rv)
		r.log.noteUpstreamRV(rv)
	}
}

// NoteHistoryReset records that the API server is behind a resourceVersion that it promised before,
// as found by a query of the given generation: it has another history, as a restored etcd does.
// When it later reaches the same resourceVersions, that proves nothing. So the next complete state
// voids what is held here, whatever its own resourceVersion. NoteHistoryReset reports whether this
// is the first such finding: after it there is nothing to do until a state of the new history
// arrives.
func (r *Resource) NoteHistoryReset(generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.IsReady() && generation == r.mu.generation && !r.historyReset.Swap(true)
}

// IsHistoryReset reports that what is held here is of another history than the API server's.
func (r *Resource) IsHistoryReset() bool { return r.historyReset.Load() }

// BeginRelist is called before the complete state that Replace applies next is requested. It
// returns CompleteRV: the state must not be older. Proofs may promise more until the state arrives.
// They show that nothing happened after CompleteRV, so the state is as new as they are.
func (r *Resource) BeginRelist() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.relistRV, r.mu.relisting = r.CompleteRV(), true
	return r.mu.relistRV
}

// endRelistLocked is the resourceVersion up to which a complete state at rv holds everything, if
// history was not rewritten.
func (r *Resource) endRelistLocked(rv uint64) uint64 {
	announced := r.mu.relisting && r.mu.relistRV <= rv
	r.mu.relisting = false
	if announced {
		return max(rv, r.CompleteRV())
	}
	return rv
}

// Replace applies a complete state at rv. The first one starts history; a later one closes the gap
// in it by a seam (see seam), or, if the API server's own history was rewritten, voids it.
func (r *Resource) Replace(objects []*object.Object, rv uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) })
	if !r.IsReady() {
		r.mu.relisting = false
		r.loadLocked(sorted)
		r.log.reset(rv, rv)
		r.publishLocked(rv)
		return nil
	}
	s := r.diffLocked(sorted, r.endRelistLocked(rv))
	r.loadLocked(sorted)
	if r.historyReset.Swap(false) || s.hasOtherHistory {
		r.mu.upstreamRV = 0
		r.voidHistoryLocked(rv)
		r.publishLocked(rv)
		return nil
	}
	r.appendLocked(s.entries()...)
	if s.hasOtherBytes {
		r.forgetRepresentationLocked(s.completeRV())
	}
	r.publishLocked(s.completeRV())
	return nil
}

// Close voids history for good: the API server no longer serves the resource, or not to the proxy,
// so nothing held here is true any more. The position of every reader expires.
func (r *Resource) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed.Store(true)
	r.voidHistoryLocked(r.CompleteRV())
	r.changed.Wake()
}

// voidHistoryLocked forgets history, which begins again at rv.
func (r *Resource) voidHistoryLocked(rv uint64) {
	r.mu.generation++
	r.log.reset(rv, r.mu.greatestRV)
	r.exactSnapshots.drop()
}

// IsClosed reports that Close was called.
func (r *Resource) IsClosed() bool { return r.closed.Load() }

// loadLocked makes objects, which are sorted, the state.
func (r *Resource) loadLocked(objects []*object.Object) {
	r.mu.tree, r.mu.indexes = newTree(), newIndexes(r.Info)
	r.mu.bytes = 0
	for _, o := range objects {
		r.mu.tree.Load(o)
		r.accountLocked(nil, o)
	}
}

// accountLocked counts and indexes a change of the tree.
func (r *Resource) accountLocked(old, new *object.Object) {
	for i := range r.mu.indexes {
		r.mu.indexes[i].replace(old, new)
	}
	if old != nil {
		r.mu.bytes -= int64(old.Size())
	}
	if new != nil {
		r.mu.bytes += int64(new.Size())
	}
}

func (r *Resource) appendLocked(entries ...Entry) {
	r.log.append(entries)
	r.trimLocked()
}

// publishLocked makes the state visible, after the log: a snapshot's Next is never beyond the log's
// head.
func (r *Resource) publishLocked(through uint64) {
	r.mu.greatestRV = max(r.mu.greatestRV, through)
	r.snapshot.Store(&Snapshot{
		RV: through, Reached: through, Next: r.log.Head(), Bytes: r.mu.bytes, generation: r.mu.generation,
		tree:    r.mu.tree.Copy(),
		indexes: copyIndexes(r.mu.indexes),
	})
	r.changed.Wake()
}

// ErrNotReached says that the cache is not complete through a resourceVersion yet.
var ErrNotReached = errors.New("resourceVersion not reached")

// AwaitRV blocks until the cache is complete through rv, and returns ctx's error if that comes
// first.
func (r *Resource) AwaitRV(ctx context.Context, rv uint64) error {
	_, err := r.AwaitSnapshot(ctx, rv)
	return err
}

// AwaitSnapshot is the first state that is complete through rv, or ctx's error if that comes first.
func (r *Resource) AwaitSnapshot(ctx context.Context, rv uint64) (*Snapshot, error) {
	for {
		changed := r.Changed()
		if s := r.Snapshot(); s != nil && s.RV >= rv {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
