package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// Follow mirrors a resource into a sink until ctx ends, or until upstream denies the resource, with
// its error (see IsDenied).
func (c *Client) Follow(ctx context.Context, log *zap.Logger, r *object.Resource, s Sink, opts ...Option) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &follower{log: log.With(zap.Stringer("resource", r)), onDenied: cancel}
	reflector := NewReflector(c, r, s, append([]Option{WithLogger(log), WithObserver(f.observer())}, opts...)...)
	f.status = reflector.Status
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stopTimerLocked()
	}()
	return reflector.Run(ctx)
}

// IsDenied reports that upstream does not serve a resource, or not to the proxy. That may last
// seconds or for good, but to retry as if upstream were merely unreachable does not change it.
func IsDenied(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		errors.Is(err, wire.ErrUncacheable)
}

// forbiddenGracePeriod is how long an API server may forbid what it allowed before: one that has
// just started does, until it has read its rules.
const forbiddenGracePeriod = 5 * time.Second

// Denials distinguishes denials that last from those of an API server that has just started. Safe
// for use by many goroutines.
type Denials struct {
	mu    sync.Mutex
	since time.Time // of the first of the denials since the last success; zero: there is none
}

// IsFinal reports whether an error is a denial of a Reflector's resource that lasts. One by 403
// lasts after forbiddenGracePeriod if the Reflector had the resource, any other at once.
func (d *Denials) IsFinal(err error, s Status) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !IsDenied(err):
		d.since = time.Time{}
		return false
	case !s.HasSynced || !apierrors.IsForbidden(err):
		return true
	case d.since.IsZero() || s.Contact.After(d.since):
		d.since = time.Now()
	}
	return time.Since(d.since) >= forbiddenGracePeriod
}

// failureLogDelay is how long a failure must last to be logged: a watch that has to be opened a
// second time is no outage.
const failureLogDelay = 2 * time.Second

// follower observes a Reflector that Follow runs: it logs an outage once, and ends the Reflector
// when upstream denies it.
type follower struct {
	log      *zap.Logger
	onDenied func(error)
	denials  Denials
	status   func() Status

	mu       sync.Mutex
	timer    *time.Timer // logs the failure; nil while there is none
	isLogged bool        // the failure is in the log
}

func (f *follower) observer() Observer {
	return Observer{OnFailure: f.recordFailure, OnOpen: f.recordRecovery, OnState: f.recordRecovery,
		OnFallback: func(err error) {
			f.log.Warn("a LIST takes the place of a watch-list", zap.Error(err))
		}}
}

// recordFailure begins a failure. It logs no denial, because Follow returns it.
func (f *follower) recordFailure(err error) {
	if f.denials.IsFinal(err, f.status()) {
		f.onDenied(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil || IsDenied(err) {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(failureLogDelay, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.timer == timer {
			f.isLogged = true
			f.log.Warn("upstream failed", zap.Error(err))
		}
	})
	f.timer = timer
}

// recordRecovery ends a failure.
func (f *follower) recordRecovery() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopTimerLocked()
	if f.isLogged {
		f.isLogged = false
		f.log.Info("upstream is of use again")
	}
}

// stopTimerLocked forgets a failure that is not in the log yet.
func (f *follower) stopTimerLocked() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}
