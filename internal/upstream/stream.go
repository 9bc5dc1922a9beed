package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

// stream is one watch, read by the loop: a body that is cut into events.
type stream struct {
	r        *Reflector
	body     io.ReadCloser
	lines    *wire.Lines
	conn     watchConn
	cancel   context.CancelFunc // ends the request
	openedAt time.Time
	endsAt   time.Time // when upstream is to end it; zero: not known

	isEmpty   bool     // no event was read
	isOrdered bool     // it is past the initial events: versions do not go back any more
	lastRV    uint64   // the greatest version so far; at first the requested one
	endMark   *endMark // of a watch-list

	failure   atomic.Pointer[error] // why it was ended by fail
	isRenewed atomic.Bool           // it was ended by renew
}

func newStream(cancel context.CancelFunc, r *Reflector, body io.ReadCloser) *stream {
	return &stream{r: r, body: body, lines: wire.NewLines(body), cancel: cancel, openedAt: time.Now(), isEmpty: true}
}

// fail ends the watch as if upstream had reported err: it needs another state. Safe for use by many
// goroutines.
func (s *stream) fail(err error) {
	s.failure.CompareAndSwap(nil, &err)
	s.cancel()
}

// renew ends the watch as if its time were over: another watch continues it. Safe for use by many
// goroutines.
func (s *stream) renew() {
	s.isRenewed.Store(true)
	s.cancel()
}

// close ends the request. Idempotent.
func (s *stream) close() {
	if s.endMark != nil {
		s.endMark.stop()
	}
	s.cancel()
	_ = s.body.Close()
}

// endMargin is how long before its time a watch may end and yet end in time: its clock is
// upstream's.
const endMargin = 5 * time.Second

// isInTime reports whether the watch is over when upstream was to end it.
func (s *stream) isInTime() bool { return time.Until(s.endsAt) <= endMargin }

// messageError is an end of the watch that calls for another state: upstream's ERROR event, or
// something that cannot be understood.
type messageError struct{ error }

func (e *messageError) Unwrap() error { return e.error }

// event is one event of a watch.
type event struct {
	kind     watch.EventType
	rv       uint64
	object   *object.Object   // of ADDED, MODIFIED and DELETED
	bookmark *object.Bookmark // the template of a BOOKMARK
	// a BOOKMARK after which all initial events have been sent (W-110)
	endsInitial bool
}

// next reads an event. Its error is a *messageError if upstream sent it or cannot be understood,
// otherwise that of the body: io.EOF at a clean end.
func (s *stream) next() (event, error) {
	s.r.loop.Rest()
	line, err := s.lines.Next()
	s.r.loop.Work()
	if errors.Is(err, wire.ErrTooLong) {
		return event{}, &messageError{fmt.Errorf("%w: %w", wire.ErrUncacheable, err)}
	}
	if err != nil {
		return event{}, err
	}
	e, err := s.parse(line)
	if err == nil {
		err = s.checkOrder(e.rv)
	}
	if err != nil {
		return event{}, &messageError{err}
	}
	s.isEmpty = false
	return e, nil
}

// parse reads one line. Nothing of the line is kept.
func (s *stream) parse(line []byte) (event, error) {
	kind, raw, err := wire.SplitEvent(line)
	if err != nil {
		return event{}, err
	}
	switch kind {
	case watch.Error:
		return event{}, wire.StatusError(raw)
	case watch.Bookmark:
		e, err := parseBookmark(s.r.resource, raw)
		if e.endsInitial && s.endMark != nil {
			s.endMark.stop()
		}
		s.isOrdered = s.isOrdered || e.endsInitial
		return e, err
	}
	if s.endMark != nil {
		s.endMark.countEvent(kind, len(raw))
	}
	o, err := wire.ParseObject(s.r.resource, raw)
	if err != nil {
		return event{}, err
	}
	return event{kind: kind, rv: o.RV, object: o}, nil
}

// errWentBack says that upstream sent something older than what it had sent before.
var errWentBack = errors.New("upstream goes back: it may have been restored from a backup")

// checkOrder checks the version of an event. A watch never goes back, nor behind the version that
// it was to begin at. One that does has another history than the mirror's, and none of its events
// fits the Sink's state. The Sink receives the complete state then, and judges what that means.
func (s *stream) checkOrder(rv uint64) error {
	if s.isOrdered && rv < s.lastRV {
		s.r.countRegression()
		return fmt.Errorf("%w: from resourceVersion %d to %d", errWentBack, s.lastRV, rv)
	}
	if s.isOrdered {
		s.lastRV = rv
	}
	return nil
}

// parseBookmark reads a bookmark and cuts the template for our own out of it. raw is not kept.
func parseBookmark(r *object.Resource, raw []byte) (event, error) {
	v, err := wire.ParseVersion(raw)
	if err != nil {
		return event{}, fmt.Errorf("bookmark of %s: %w", r, err)
	}
	template, err := object.BookmarkFrom(r, raw)
	return event{kind: watch.Bookmark, rv: v.RV, bookmark: template, endsInitial: v.EndsInitial}, err
}
