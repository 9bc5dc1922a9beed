package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"spillway/internal/object"
	"spillway/internal/watchdog"
)

// Sink receives one resource's state and changes, in upstream's order, from one goroutine. When it
// returns an error it receives nothing more until the next Replace, which follows after a backoff.
type Sink interface {
	// Replace is the complete state at rv, unsorted.
	Replace(objects []*object.Object, rv uint64) error
	Add(*object.Object) error
	Update(*object.Object) error
	// Delete is given the last state; its RV is that of the deletion (W-104).
	Delete(*object.Object) error
	// Bookmark is progress: all events up to rv were delivered. b is the template cut from
	// upstream's bookmark.
	Bookmark(b *object.Bookmark, rv uint64) error
}

// Reflector mirrors one upstream resource into a Sink: a watch-list, then the watch that goes on
// from it, and all over again whenever upstream says 410 (see loop). What it keeps as bytes is what
// upstream sent.
type Reflector struct {
	client       *Client
	resource     *object.Resource
	sink         Sink
	log          *zap.Logger
	observer     Observer
	readPromised func() uint64 // nil: no more is promised than the Sink received

	pauses      wait.Backoff  // between requests, and between complete states
	endMarkWait time.Duration // how long a watch-list may make no progress before its end

	mustRelist atomic.Bool            // the next watch must not resume
	warning    atomic.Pointer[string] // see Warning
	isAway     atomic.Bool            // Status.AwaySince is set
	loop       watchdog.Loop          // rests while Run waits for upstream, or until an attempt is due
	startedAt  time.Time
	// contact is Status.Contact, and unwatched since when no watch is open, both in nanoseconds
	// after startedAt; 0: never, and one is. A clock that may be set does not change them.
	contact, unwatched atomic.Int64

	mu     sync.Mutex
	stream *stream // the watch under way, nil if there is none
	status Status
}

// Status is how a Reflector is doing. The counters never go back.
type Status struct {
	// HasSynced says that the Sink was given a complete state. It stays so when upstream fails:
	// Err and Contact tell of that.
	HasSynced bool
	// RV is how far the Sink has been brought.
	RV uint64
	// Err is why upstream was last of no use, nil once it was again. An HTTP answer is an
	// apierrors.APIStatus; see also wire.ErrUncacheable.
	Err error
	// Contact is when upstream last sent anything useful.
	Contact time.Time
	// AwaySince is since when upstream has been of no use; zero while it is.
	AwaySince time.Time
	// Replaces counts complete states given to the Sink, Watches the watches that upstream
	// accepted, Failures what set Err.
	Replaces, Watches, Failures uint64
	// Regressions counts the watches on which upstream went back to something older than what it
	// had told before.
	Regressions uint64
}

// Option adjusts a Reflector.
type Option func(*Reflector)

// WithLogger says where the Reflector logs. The default is nowhere.
func WithLogger(log *zap.Logger) Option {
	return func(r *Reflector) { r.log = log.With(zap.Stringer("resource", r.resource)) }
}

// WithPromised says up to which version the mirror's readers have been promised that nothing is
// missing: a proof may have taken that further than the watch. A complete state that is requested
// as "not older than" the watch's last version must not be older than this either: behind a load
// balancer another apiserver may be. It is called whenever a complete state is about to be
// requested, and then only.
func WithPromised(rv func() uint64) Option {
	return func(r *Reflector) { r.readPromised = rv }
}

// WithPauses says how long to wait before the next request upstream: after the first failure, and
// at most. The default is 0.2 s and 8 s.
func WithPauses(first, longest time.Duration) Option {
	return func(r *Reflector) { r.pauses = pauses(first, longest) }
}

// WithEndMarkWait says how long a watch-list may make no progress before its initial events end.
// The default is 10 s.
func WithEndMarkWait(d time.Duration) Option {
	return func(r *Reflector) { r.endMarkWait = d }
}

// NewReflector starts nothing; Run does.
func NewReflector(client *Client, resource *object.Resource, sink Sink, opts ...Option) *Reflector {
	r := &Reflector{client: client, resource: resource, sink: sink, log: zap.NewNop(), observer: Observer{}.complete(),
		pauses: pauses(minPause, maxPause), endMarkWait: endMarkTimeout, startedAt: time.Now()}
	for _, o := range opts {
		o(r)
	}
	return r
}

// Status is how the mirror is doing now.
func (r *Reflector) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// AwaySince is since when upstream has been of no use, zero while it is, and when it last was of
// use. It is for every request to ask.
func (r *Reflector) AwaySince() (since, contact time.Time) {
	if !r.isAway.Load() {
		return time.Time{}, time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.AwaySince, r.status.Contact
}

// Progress is a watchdog.ProgressFunc of what Run does between two waits for upstream.
func (r *Reflector) Progress() (turns uint64, working bool) { return r.loop.Progress() }

// Contact is Status.Contact, for every request to ask: it waits for nothing that Run may hold.
func (r *Reflector) Contact() time.Time { return r.timeAfterStart(&r.contact) }

// UnwatchedSince is since when no watch has kept the state current. It is zero while one does, and
// if none has yet.
func (r *Reflector) UnwatchedSince() time.Time { return r.timeAfterStart(&r.unwatched) }

func (r *Reflector) timeAfterStart(after *atomic.Int64) time.Time {
	if ns := after.Load(); ns != 0 {
		return r.startedAt.Add(time.Duration(ns))
	}
	return time.Time{}
}

// wait calls what waits for upstream, or until an attempt is due.
func (r *Reflector) wait(f func()) {
	r.loop.Rest()
	f()
	r.loop.Work()
}

// Warning is what upstream says in the Warning header of every answer about the resource, "" if
// nothing: that its version is deprecated (W-4). It is known before the Sink receives anything.
func (r *Reflector) Warning() string {
	if w := r.warning.Load(); w != nil {
		return *w
	}
	return ""
}

// Relist asks for the complete state again: the watch under way ends, and a Replace follows after a
// backoff. It is for what changes the bytes of objects without an event, such as a CRD's schema
// (design D2).
func (r *Reflector) Relist(reason string) {
	r.mustRelist.Store(true)
	r.log.Debug("relisting", zap.String("reason", reason))
	r.observer.OnRelist(reason)
	if s := r.openStream(); s != nil {
		s.fail(errRelist)
	}
}

// Renew ends the watch under way. Another one goes on where it was.
func (r *Reflector) Renew() {
	if s := r.openStream(); s != nil {
		s.renew()
	}
}

// openStream is the watch under way, nil if there is none.
func (r *Reflector) openStream() *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stream
}

// recordOpen notes the watch that is under way from now on.
func (r *Reflector) recordOpen(s *stream) {
	r.recordContact(func(status *Status) {
		status.Watches++
		r.stream = s
	})
	if s.isOrdered {
		r.recordWatched()
		r.observer.OnOpen()
	}
	if r.mustRelist.Load() {
		s.fail(errRelist) // asked for while nothing could be interrupted
	}
}

// recordWatched notes that a watch keeps the state current from now on. A watch-list does so once
// its initial events have ended.
func (r *Reflector) recordWatched() { r.unwatched.Store(0) }

// recordClose notes that a watch has ended.
func (r *Reflector) recordClose(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == s {
		r.stream = nil
		r.unwatched.Store(int64(time.Since(r.startedAt)))
	}
}

// recordFailure records that upstream, or what it sent, was of no use.
func (r *Reflector) recordFailure(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return // our own end, not upstream's
	}
	now := time.Now()
	r.mu.Lock()
	if r.status.AwaySince.IsZero() {
		r.status.AwaySince = now
		r.isAway.Store(true)
	}
	r.status.Err = err
	r.status.Failures++
	r.mu.Unlock()
	r.log.Debug("upstream failed", zap.String("request", what), zap.Error(err))
	r.observer.OnFailure(err)
}

// countRegression counts a watch on which upstream went back.
func (r *Reflector) countRegression() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Regressions++
}

// recordContact records that upstream sent something useful; change is called with mu held.
func (r *Reflector) recordContact(change func(*Status)) {
	now := time.Now()
	r.contact.Store(int64(now.Sub(r.startedAt)))
	r.mu.Lock()
	away := r.status.AwaySince
	r.status.Contact, r.status.Err, r.status.AwaySince = now, nil, time.Time{}
	if change != nil {
		change(&r.status)
	}
	r.isAway.Store(false)
	r.mu.Unlock()
	if !away.IsZero() {
		r.log.Debug("upstream is of use again", zap.Duration("after", now.Sub(away)))
	}
}
