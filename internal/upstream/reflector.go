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
// from it, and both again whenever upstream answers 410 (see loop). Objects keep the bytes that
// upstream sent.
type Reflector struct {
	client       *Client
	resource     *object.Resource
	sink         Sink
	log          *zap.Logger
	observer     Observer
	readPromised func() uint64 // see WithPromised; nil: no more is promised than the Sink received

	pauses      wait.Backoff  // between requests, and between complete states
	endMarkWait time.Duration // how long a watch-list may make no progress before its end

	mustRelist atomic.Bool            // the next watch must not resume
	warning    atomic.Pointer[string] // see Warning
	isFailing  atomic.Bool            // Status.FailingSince is set
	loop       watchdog.Loop          // rests while Run waits for upstream, or until an attempt is due
	startedAt  time.Time
	// In nanoseconds after startedAt, so that a clock that is set does not change them.
	contact   atomic.Int64 // Status.Contact; 0: never
	unwatched atomic.Int64 // UnwatchedSince; 0: a watch keeps the state current, or none ever began

	mu     sync.Mutex
	stream *stream // the watch under way, nil if there is none
	status Status
}

// Status is the state of a Reflector. The counters never go back.
type Status struct {
	// HasSynced says that the Sink was given a complete state. It stays so when upstream fails: Err
	// and Contact show that.
	HasSynced bool
	// RV is the version of the Sink's state.
	RV uint64
	// Err is the last failure, nil if upstream has sent anything useful after it. An HTTP answer is
	// an apierrors.APIStatus; see also wire.ErrUncacheable.
	Err error
	// Contact is when upstream last sent anything useful.
	Contact time.Time
	// FailingSince is when the first failure after Contact was; zero: there is none.
	FailingSince time.Time
	Replaces     uint64 // complete states that the Sink was given
	Watches      uint64 // that upstream accepted
	Failures     uint64 // all that set Err
	Regressions  uint64 // watches on which upstream sent an older version than before
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
// balancer, another API server may have less. rv is called only when a complete state is about to
// be requested.
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

// Status is the present state.
func (r *Reflector) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// FailingSince is Status.FailingSince and, unless that is zero, Status.Contact. It may be called
// for each request.
func (r *Reflector) FailingSince() (since, contact time.Time) {
	if !r.isFailing.Load() {
		return time.Time{}, time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.FailingSince, r.status.Contact
}

// Progress is the watchdog.ProgressFunc of Run.
func (r *Reflector) Progress() (turns uint64, working bool) { return r.loop.Progress() }

// Contact is Status.Contact. It takes no lock, so it may be called for each request.
func (r *Reflector) Contact() time.Time { return r.timeAfterStart(&r.contact) }

// UnwatchedSince is when the last watch ended, if none has kept the state current since. A
// watch-list does so only once its initial events have ended. It is zero if no watch has ended yet.
func (r *Reflector) UnwatchedSince() time.Time { return r.timeAfterStart(&r.unwatched) }

func (r *Reflector) timeAfterStart(after *atomic.Int64) time.Time {
	if ns := after.Load(); ns != 0 {
		return r.startedAt.Add(time.Duration(ns))
	}
	return time.Time{}
}

// wait calls f, which waits for upstream, or until an attempt is due.
func (r *Reflector) wait(f func()) {
	r.loop.Rest()
	f()
	r.loop.Work()
}

// Warning is the Warning header of upstream's answers about the resource, "" if there is none: that
// its version is deprecated (W-4), for example. It is known before the Sink receives anything.
func (r *Reflector) Warning() string {
	if w := r.warning.Load(); w != nil {
		return *w
	}
	return ""
}

// Relist has the complete state read again: the watch under way ends, and a Replace follows after a
// backoff. It is for changes of objects' bytes without an event, such as by a CRD's schema (design
// D2).
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
		s.fail(errRelist) // Relist found no watch to end
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

// recordFailure records that upstream did not answer, or sent nothing useful.
func (r *Reflector) recordFailure(ctx context.Context, request string, err error) {
	if ctx.Err() != nil {
		return // Run was ended
	}
	now := time.Now()
	r.mu.Lock()
	if r.status.FailingSince.IsZero() {
		r.status.FailingSince = now
		r.isFailing.Store(true)
	}
	r.status.Err = err
	r.status.Failures++
	r.mu.Unlock()
	r.log.Debug("upstream failed", zap.String("request", request), zap.Error(err))
	r.observer.OnFailure(err)
}

// countRegression counts a watch on which upstream sent an older version.
func (r *Reflector) countRegression() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Regressions++
}

// recordContact records that upstream sent something useful. change, which may be nil, is called
// with mu held.
func (r *Reflector) recordContact(change func(*Status)) {
	now := time.Now()
	r.contact.Store(int64(now.Sub(r.startedAt)))
	r.mu.Lock()
	failedAt := r.status.FailingSince
	r.status.Contact, r.status.Err, r.status.FailingSince = now, nil, time.Time{}
	if change != nil {
		change(&r.status)
	}
	r.isFailing.Store(false)
	r.mu.Unlock()
	if !failedAt.IsZero() {
		r.log.Debug("upstream is of use again", zap.Duration("after", now.Sub(failedAt)))
	}
}
