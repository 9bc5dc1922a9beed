package upstream

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
)

const (
	// minWatchSeconds is the shortest timeoutSeconds of a watch; the longest is twice that. They are
	// client-go's.
	minWatchSeconds = 300
	// stableStateDuration is how long a mirror must have needed no complete state for the pauses
	// between complete states to be short again.
	stableStateDuration = 2 * time.Minute
)

// loop is one Run of a Reflector, and belongs to its goroutine: a complete state, then watches that
// continue it, until only another complete state helps.
//
// The requests and their order are those of client-go's Reflector (W-190), for which upstream is
// built. The loop differs where a mirror of many clients must. client-go reads the complete state
// after most failures; this loop opens the watch again until upstream answers that it cannot go on.
// client-go's pauses grow to a minute, these to 8 s. client-go needs decoded objects, a store and a
// second goroutine; here one goroutine reads the events and gives them to the Sink as they are.
type loop struct {
	r *Reflector

	rv          uint64           // of the Sink's state, 0 if it has none
	isRVMissing bool             // upstream does not have rv: the next state is its most recent one
	hasNoCache  bool             // upstream has no watch cache: it applies limits to LISTs at any version
	template    *object.Bookmark // of upstream's latest bookmark

	pauses       wait.Backoff // between requests
	statePauses  wait.Backoff // between complete states
	lastEnd      *ending      // of the last watch, until the next one is opened
	unendedCount int          // watch-lists in a row that ended without their end mark
	listUntil    time.Time    // until when no watch-list is tried, because one did not end
}

// errSink is an error of the Sink. The Sink receives nothing more until the next Replace.
type errSink struct{ error }

func (e errSink) Unwrap() error { return e.error }

// Run mirrors until ctx ends and returns then, with its cause, once nothing of it runs any more. It
// may be called again, not twice at once.
func (r *Reflector) Run(ctx context.Context) error {
	l := loop{r: r, pauses: r.pauses, statePauses: r.pauses}
	for ctx.Err() == nil {
		began := time.Now()
		l.mirror(ctx)
		if time.Since(began) >= stableStateDuration {
			l.statePauses = r.pauses
		}
		pause := l.statePauses.Step()
		r.observer.OnWait(time.Now().Add(pause))
		l.sleep(ctx, pause)
	}
	r.loop.Rest()
	return context.Cause(ctx)
}

// sleep waits for d, or until ctx ends.
func (l *loop) sleep(ctx context.Context, d time.Duration) { l.r.wait(func() { sleep(ctx, d) }) }

// mirror gives the Sink a complete state and follows it with watches, until no watch can continue.
func (l *loop) mirror(ctx context.Context) {
	st, err := l.watchList(ctx)
	if err != nil && !errors.As(err, new(errSink)) && ctx.Err() == nil {
		l.r.log.Debug("a LIST takes the place of a watch-list", zap.Error(err))
		st, err = nil, l.readList(ctx)
	}
	for err == nil && ctx.Err() == nil {
		if st == nil { // after a LIST, or the end of a watch
			st, err = l.resumeWatch(ctx)
		}
		if err == nil {
			err = l.follow(ctx, st)
			st = nil
		}
		if apierrors.IsTooManyRequests(err) { // a later watch may be admitted, and the state is as good as it was
			err = nil
			l.sleep(ctx, l.pauses.Step())
		}
	}
	if st != nil {
		_ = l.end(ctx, st, context.Canceled)
	}
}

// watchList gives the Sink the initial events of a watch-list and returns the watch that goes on
// from there. Any error but an errSink asks for a LIST instead.
func (l *loop) watchList(ctx context.Context) (*stream, error) {
	for {
		l.pauseAfterEnd(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Now().Before(l.listUntil) {
			return nil, errNoEnd
		}
		o := l.watchOptions()
		o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
		if l.isRVMissing {
			o.ResourceVersion = ""
		}
		st, err := l.open(ctx, o)
		complete := false
		if err == nil {
			complete, err = l.readInitial(ctx, st)
		}
		switch {
		case complete:
			l.r.recordWatched()
			return st, nil
		case err == nil, errors.Is(err, errRelist): // another watch-list may be complete
		case apierrors.IsTooManyRequests(err):
			l.sleep(ctx, l.pauses.Step())
		case isVersionMissing(err) && !l.isRVMissing:
			l.isRVMissing = true
		default:
			return nil, err
		}
	}
}

// readInitial reads initial events and gives the Sink the state that they make. If the watch-list
// ends before that, it returns false and what end returns.
func (l *loop) readInitial(ctx context.Context, st *stream) (complete bool, err error) {
	objects := map[string]*object.Object{}
	for {
		e, err := st.next()
		switch {
		case err != nil:
			return false, l.end(ctx, st, err)
		case e.endsInitial:
			l.template, l.unendedCount = e.bookmark, 0
			if err := l.replace(ctx, slices.Collect(maps.Values(objects)), e.rv); err != nil {
				return false, l.end(ctx, st, err)
			}
			return true, nil
		case e.kind == watch.Bookmark:
			l.template = e.bookmark
		case e.kind == watch.Deleted:
			delete(objects, e.object.Key)
		default:
			objects[e.object.Key] = e.object
		}
	}
}

// resumeWatch opens a watch that continues the Sink's state.
func (l *loop) resumeWatch(ctx context.Context) (*stream, error) {
	l.pauseAfterEnd(ctx)
	return l.open(ctx, l.watchOptions())
}

func (l *loop) watchOptions() metav1.ListOptions {
	o := metav1.ListOptions{
		AllowWatchBookmarks: true,
		TimeoutSeconds:      new(minWatchSeconds + rand.Int64N(minWatchSeconds)), // #nosec G404 -- spreads times
	}
	if l.rv > 0 {
		o.ResourceVersion = strconv.FormatUint(l.rv, 10)
	}
	return o
}

// follow gives the Sink the events of a watch until it ends, and returns as end does.
func (l *loop) follow(ctx context.Context, st *stream) error {
	for {
		e, err := st.next()
		if err == nil {
			err = l.apply(ctx, e)
		}
		if err != nil {
			return l.end(ctx, st, err)
		}
	}
}

// replace gives the Sink a complete state, and the template of the bookmark that came with it.
func (l *loop) replace(ctx context.Context, objects []*object.Object, rv uint64) error {
	if err := l.r.sink.Replace(objects, rv); err != nil {
		return l.recordSinkError(ctx, err)
	}
	l.rv, l.isRVMissing = rv, false
	l.r.recordContact(func(st *Status) {
		st.HasSynced, st.RV = true, rv
		st.Replaces++
	})
	l.r.observer.OnState()
	if l.template == nil {
		return nil
	}
	return l.recordSinkError(ctx, l.r.sink.Bookmark(l.template, rv))
}

// apply gives the Sink an event.
func (l *loop) apply(ctx context.Context, e event) error {
	sink, err := l.r.sink, error(nil)
	switch e.kind {
	case watch.Added:
		err = sink.Add(e.object)
	case watch.Modified:
		err = sink.Update(e.object)
	case watch.Deleted:
		err = sink.Delete(e.object)
	case watch.Bookmark:
		l.template = e.bookmark
		err = sink.Bookmark(e.bookmark, e.rv)
	}
	if err != nil {
		return l.recordSinkError(ctx, err)
	}
	l.rv = e.rv
	l.r.recordContact(func(st *Status) { st.RV = e.rv })
	return nil
}

// recordSinkError records an error of the Sink, if it is one, and returns it as an errSink.
func (l *loop) recordSinkError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	l.r.recordFailure(ctx, "store", err)
	return errSink{err}
}
