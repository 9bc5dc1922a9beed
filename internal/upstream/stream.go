package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"spillway/internal/object"
	"spillway/internal/upstream/wire"
)

var _ watch.Interface = (*stream)(nil)

// stream is one watch as client-go's loop reads it: a goroutine cuts the body into events and hands
// them over one by one.
//
// A body that ends anywhere, cut off or not, is the end of the watch and no error: the loop resumes
// after the last whole event. Only what cannot be understood is an ERROR event, which makes the
// loop start over with a complete state.
type stream struct {
	r        *Reflector
	resource *object.Resource
	body     io.ReadCloser
	carrier  carrier
	until    time.Time     // when upstream is to end it, set before run; zero: not known
	least    time.Duration // for how long the loop sees it at least, if it is without events; set before run
	born     time.Time
	last     uint64    // the greatest version so far; at first what was requested
	endMark  *endMark  // of a watch-list; set before run, nil once it was seen
	ordered  bool      // versions do not go back any more: it is past the initial events
	begun    time.Time // when the loop began to count events: at its birth, and again after the initial ones
	sent     bool      // an event since
	events   chan watch.Event
	cancel   context.CancelFunc // ends the request
	stop     sync.Once
	stopped  chan struct{}         // events are not read any more
	failure  atomic.Pointer[error] // why we ended it ourselves
	renewed  atomic.Bool           // we ended it, and for no fault of upstream's history
}

func newStream(cancel context.CancelFunc, r *Reflector, body io.ReadCloser) *stream {
	now := time.Now()
	return &stream{
		r: r, resource: r.resource, body: body, events: make(chan watch.Event), born: now, begun: now,
		cancel: cancel, stopped: make(chan struct{}),
	}
}

// ResultChan is closed at the end of the watch.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the watch. It may be called any number of times.
func (s *stream) Stop() {
	s.stop.Do(func() { close(s.stopped) })
	s.cancel()
}

// fail ends the watch as if upstream had reported err.
func (s *stream) fail(err error) {
	s.failure.CompareAndSwap(nil, &err)
	s.cancel()
}

// renew ends the watch as if its time were over.
func (s *stream) renew() {
	s.renewed.Store(true)
	s.cancel()
}

// run reads until the body ends.
func (s *stream) run() {
	defer close(s.events)
	defer s.body.Close()
	defer s.cancel()
	err := s.read()
	if s.endMark != nil {
		s.endMark.stop()
	}
	own, inTime := s.failure.Load(), time.Until(s.until) <= endMargin
	var end *endError
	told := errors.As(err, &end)
	s.r.closed(s, ending{time.Since(s.born), inTime || own != nil || told || s.renewed.Load()})
	if own != nil {
		if errors.As(*own, new(errNoEndMark)) {
			s.r.fallBack(*own)
		}
		s.send(watch.Event{Type: watch.Error, Object: asStatus(*own)})
		return
	}
	if told {
		s.r.failed(context.Background(), "watch", end.error)
		s.send(watch.Event{Type: watch.Error, Object: asStatus(end.error)})
		return
	}
	if err == io.EOF && s.endMark != nil && !s.renewed.Load() && s.r.unended.Add(1) >= unendedLimit {
		s.r.fallBack(errNoEnd)
		s.send(watch.Event{Type: watch.Error, Object: asStatus(errNoEnd)})
		return
	}
	switch {
	case errors.Is(err, context.Canceled): // by us
	case !errors.Is(err, io.EOF):
		s.r.failed(context.Background(), "watch", err) // it resumes, but until then nothing is current
	case !inTime:
		s.r.observer.Ended()
	}
	s.r.log.Debug("watch ended", zap.Error(err))
	s.linger()
}

// linger keeps the loop from taking a watch that ended at once for something that cannot be
// watched. It would list then, which is right only as long as there is no state to go on from.
func (s *stream) linger() {
	if s.sent || !s.ordered || s.least == 0 {
		return
	}
	timer := time.NewTimer(time.Until(s.begun.Add(s.least)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopped:
	}
}

// endMargin is how much before its time a watch may end and yet end in time: its clock is
// upstream's.
const endMargin = 5 * time.Second

// endError is an end of the watch that the loop must learn of: upstream's ERROR event, or something
// that makes no sense.
type endError struct{ error }

func (e *endError) Unwrap() error { return e.error }

func (s *stream) read() error {
	in := wire.NewLines(s.body)
	for {
		line, err := in.Next()
		if errors.Is(err, wire.ErrTooLong) {
			return &endError{fmt.Errorf("%w: %w", ErrUncacheable, err)}
		}
		if err != nil {
			return err
		}
		event, err := s.event(line)
		if err != nil {
			return &endError{err}
		}
		if !s.send(event) {
			return context.Canceled
		}
	}
}

// event reads one line. Nothing of the line is kept.
func (s *stream) event(line []byte) (watch.Event, error) {
	t, raw, err := split(line)
	if err != nil {
		return watch.Event{}, err
	}
	switch t {
	case watch.Error:
		return watch.Event{}, statusError(raw)
	case watch.Bookmark:
		b, err := s.bookmark(raw)
		if err != nil {
			return watch.Event{}, err
		}
		if b.ends() && s.endMark != nil {
			s.endMark.stop()
			s.endMark = nil
			s.r.unended.Store(0)
		}
		s.ordered = s.ordered || b.ends()
		return watch.Event{Type: t, Object: b}, s.follows(b.rv)
	}
	if s.endMark != nil {
		s.endMark.saw(t, len(raw))
	}
	o, err := parse(s.resource, raw)
	if err != nil {
		return watch.Event{}, err
	}
	return watch.Event{Type: t, Object: item{o}}, s.follows(o.RV)
}

// errWentBack says that upstream told of something older than what it had told before.
var errWentBack = errors.New("upstream goes back: it may have been restored from a backup")

// follows checks the version of an event. A watch never goes back, nor behind the version that it
// was to begin at; if one does, its history is another than the mirror's, and what else it says
// fits nothing that is held here. The Sink is given the complete state then, and judges what that
// means.
func (s *stream) follows(rv uint64) error {
	if s.ordered && rv < s.last {
		s.r.wentBack()
		return fmt.Errorf("%w: from resourceVersion %d to %d", errWentBack, s.last, rv)
	}
	if s.ordered {
		s.last = rv
	}
	return nil
}

func (s *stream) bookmark(raw []byte) (*bookmark, error) {
	b, template, err := parseBookmark(s.resource, raw)
	if err != nil {
		return nil, err
	}
	s.r.template.Store(template) // before it is handed over: the store looks it up
	return b, nil
}

// statusError is the error in an ERROR event.
func statusError(raw []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(raw, &status); err != nil || status.Kind != "Status" {
		return fmt.Errorf("ERROR event with %.200q", raw)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// send hands an event over, unless the reader has stopped.
func (s *stream) send(e watch.Event) bool {
	select {
	case s.events <- e:
		s.sent = true
		if b, ok := e.Object.(*bookmark); ok && b.ends() {
			s.sent, s.begun = false, time.Now()
		}
		return true
	case <-s.stopped:
		return false
	}
}

// split cuts a line into the event's type and the bytes of its object, which alias the line. The
// common case is cut by position: parsing the object shows whether more than one value stands
// there.
func split(line []byte) (watch.EventType, []byte, error) {
	const head, middle = `{"type":"`, `","object":`
	if rest, ok := bytes.CutPrefix(line, []byte(head)); ok {
		kind, object, ok := bytes.Cut(rest, []byte(middle))
		if t := eventType(kind); ok && t != "" && len(object) > 1 && object[len(object)-1] == '}' {
			return t, object[:len(object)-1], nil
		}
	}
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("watch event: %w", err)
	}
	t := eventType([]byte(e.Type))
	if t == "" {
		return "", nil, fmt.Errorf("watch event of unknown type %.40q", e.Type)
	}
	return t, e.Object, nil
}

func eventType(name []byte) watch.EventType {
	switch string(name) {
	case "ADDED":
		return watch.Added
	case "MODIFIED":
		return watch.Modified
	case "DELETED":
		return watch.Deleted
	case "BOOKMARK":
		return watch.Bookmark
	case "ERROR":
		return watch.Error
	}
	return ""
}
