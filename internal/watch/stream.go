package watch

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth/reauth"
	"spillway/internal/backfill"
	"spillway/internal/clientconn"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
	"spillway/internal/source"
)

// Stream is one client's watch: its sink, its cursor, its deadline, and in the end its EndReason.
//
// The stream is pulled: its deliverer calls pull when the client has taken what was sent before.
// While the client takes nothing, nothing happens. Past its initial events a stream holds a cursor
// and no objects.
//
// Manager.Open opens a stream, and Serve delivers it until the first of these:
//
//  1. Its deadline passes (EndTimeout).
//  2. The proxy drains (EndDrain) or stops (EndAborted).
//  3. The client leaves (EndClientClosed), or takes too little (EndSlowClient…).
//  4. The client loses its permission (EndForbidden and the others of package reauth).
//  5. The history does not have the next event any more (EndResourceVersionExpired,
//     EndBackfillFailed), or never got to the first one (EndResourceVersionTooLarge).
//  6. The next event cannot be encoded for the client (EndEncodingFailed).
//  7. The API server serves the resource no more (EndResourceNotServed).
//  8. Memory is short, and the selector is expensive (EndMemoryPressure).
//
// Lifecycle.Cleanup then counts the stream out and ends its sink, once.
type Stream struct {
	Lifecycle

	// Static after construction.
	source                *source.Source
	start                 plan.WatchStart
	timeout               time.Duration // how long it lasts
	deadline              monotonicTime
	encoding              object.Encoding
	failureFormat         apistatus.StatusFormat
	wantsBookmarks        bool
	wantsInitialEventsEnd bool
	owner                 fanout.Owner // that the hub counts it for

	// Set by Open, from the request or by upstream; the events after it follow.
	fromRV uint64

	// What it holds of the limits.
	watchPermit   flowcontrol.Permit        // of the number of watches
	selectorClaim flowcontrol.SelectorClaim // of what selectors weigh
	statePermit   *flowcontrol.Permit       // of the bytes of initial states; nil: it has no large one, or has sent it

	// Set before it is delivered, and then static.
	out         sink                                      // under manager.mu
	admit       func(reauth.ReviewedStream) *reauth.Lease // nil: it is not reauthorised, or has its lease
	reauthLease *reauth.Lease                             // nil: it is not reauthorised
	recordEnd   func()                                    // puts its end on record; nil: there is no record

	// Any goroutine's.
	liveSelector atomic.Pointer[object.Selector] // the request's own, and then its feed's, which is equal
	slot         atomic.Pointer[slot]            // where it is delivered from, once it has no goroutine
	pause        pauseState
	sentBytes    atomic.Int64

	// The deliverer's, once the stream is open.
	beginning   beginning          // what is sent first; empty from then on
	backfill    *backfill.Backfill // events from before the log that are not sent yet; nil: none
	cursor      *fanout.Cursor
	startRV     uint64 // that the client begins at: bookmarks at or below it show nothing new (W-111)
	bookmarkDue monotonicTime
	pausedUntil <-chan struct{} // closed on Resume, as pullRun last found it; nil: it was not paused
	hadEvents   bool            // the last pull had events for it
	served      bool            // the deliverer counts it out, not the handler of its request

	// What a delivery does not need.
	id     uint64 // set when it is admitted; no other stream has it
	client ClientInfo

	// What counters reads. The deliverer holds it while it uses the cursor, never while it waits
	// for the client.
	mu struct {
		sync.Mutex
		live, ended  bool
		unsent       int
		blockedSince monotonicTime
		initialWait  *clientconn.ClientWait // of its initial events; nil: none are being sent
	}
}

// bookmarkPeriod and bookmarkLead are when bookmarks are due: each minute, and two seconds before
// the deadline, so that a client reconnects with a fresh resourceVersion (W-111).
const (
	bookmarkPeriod = time.Minute
	bookmarkLead   = 2 * time.Second
)

// selector is what the stream selects.
func (s *Stream) selector() object.Selector { return *s.liveSelector.Load() }

// resource is the label of metrics and log lines.
func (s *Stream) resource() string { return s.source.Resource().Info.String() }

// hub is the hub, as the stream's user uses it.
func (s *Stream) hub() fanout.OwnerView { return s.source.Hub.ViewFor(s.owner) }

// deliverInitial sends the head and what the stream begins with: then live events follow. An error
// is the stream's end.
func (s *Stream) deliverInitial() error {
	defer s.releaseState()
	first := s.beginning
	s.beginning = beginning{}
	s.out.Pace(first.pinnedBytes())
	s.noteInitialWait(s.out.wait())
	err := s.sendBeginning(first)
	s.noteInitialWait(nil)
	s.out.Pace(0) // not after a panic, which may have left the connection locked
	return err
}

func (s *Stream) sendBeginning(first beginning) error {
	err := s.out.begin()
	switch {
	case err != nil:
		return err
	case first.err != nil:
		return first.err
	case s.backfill != nil:
		return s.deliverBackfill()
	case first.state == nil:
		return nil
	}
	if err := s.sendState(first.state); err != nil {
		return err
	}
	return s.sendInitialEventsEnd()
}

func (s *Stream) bookmarkTemplate() *object.Bookmark { return s.source.Resource().BookmarkTemplate() }

// pullRun returns what is sent next, valid until the next pull: nothing if the client has
// everything. checkDue says that something other than events may be due. A reason or an error is
// the stream's end, after the bytes.
func (s *Stream) pullRun(checkDue bool) (run []byte, reason EndReason, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if checkDue {
		if reason := s.revokedReason(); reason != "" {
			return nil, reason, nil
		}
	}
	s.pausedUntil = s.pause.done()
	paused := s.pausedUntil != nil
	if checkDue && (paused || s.hadEvents) { // a stream that is never caught up has a deadline, too
		if run, reason, err = s.makeDueRun(false); reason != "" || err != nil {
			return run, reason, err
		}
	}
	if paused {
		return nil, "", nil
	}
	run, err = s.cursor.Next()
	s.hadEvents = len(run) > 0
	if err != nil || s.hadEvents || !checkDue {
		return run, "", err
	}
	return s.makeDueRun(!s.cursor.HasMore())
}

// makeDueRun makes what is due: an end, or a bookmark if the client has everything. Inside a seam
// nothing is due, except the end of a paused stream whose deadline has passed; that end is not
// clean.
func (s *Stream) makeDueRun(caughtUp bool) ([]byte, EndReason, error) {
	if s.cursor.IsInSeam() {
		if s.pausedUntil != nil && (s.Reason() != "" || now() >= s.deadline) {
			return nil, EndAborted, nil
		}
		return nil, "", nil
	}
	if reason := s.Reason(); reason != "" {
		if reason != EndDrain || s.pausedUntil != nil {
			return nil, reason, nil
		}
		mark, err := s.makeBookmark(s.cursor.CompleteRV())
		return mark, reason, err
	}
	present := now()
	if present >= s.deadline {
		return nil, EndTimeout, nil
	}
	if caughtUp && present >= s.bookmarkDue {
		s.scheduleBookmark(present)
		mark, err := s.makeBookmark(s.cursor.CompleteRV())
		return mark, "", err
	}
	return nil, "", nil
}

// makeBookmark makes a bookmark, if it is news to the client.
func (s *Stream) makeBookmark(rv uint64) ([]byte, error) {
	if !s.wantsBookmarks || rv <= s.startRV {
		return nil, nil
	}
	return fanout.AppendBookmark(nil, s.encoding, s.bookmarkTemplate(), rv, false)
}

// scheduleBookmark sets when the next bookmark is due.
func (s *Stream) scheduleBookmark(present monotonicTime) {
	s.bookmarkDue = min(present.after(bookmarkPeriod), s.deadline.after(-bookmarkLead))
	if s.bookmarkDue <= present {
		s.bookmarkDue = s.deadline.after(time.Hour)
	}
}

// nextDue is when something is due. A stream without bookmarks is looked at as often, which keeps
// its cursor near the head of the log. Otherwise its feed could drop it after an hour, and its
// client could not resume from its last event.
func (s *Stream) nextDue() monotonicTime {
	if s.pausedUntil == nil {
		return min(s.bookmarkDue, s.deadline)
	}
	return s.deadline
}

// sendFrame writes a frame, if it could be made.
func (s *Stream) sendFrame(frame []byte, err error) error {
	if err != nil {
		return err
	}
	return s.write(frame)
}

func (s *Stream) write(b []byte) error {
	n, err := s.out.Write(b)
	s.sentBytes.Add(int64(n))
	return err
}

// endReasonOf is the reason behind an error. A write also fails if the connection was closed for a
// reason that is settled already: then that reason counts.
func (s *Stream) endReasonOf(err error) EndReason {
	switch reason := ReasonOf(err); {
	case reason == EndResourceVersionExpired && s.source.Resource().IsClosed():
		return EndResourceNotServed
	case reason == EndResourceVersionExpired && s.isOvertaken(err):
		return EndBackfillFailed
	case reason != EndAborted:
		return reason
	}
	if reason := s.Reason(); !reason.Clean() || reason.isRevoked() {
		return reason
	}
	if errors.Is(err, net.ErrClosed) {
		return EndAborted
	}
	return EndClientClosed
}

// lastFrames makes the last frames of the stream, and settles the reason.
func (s *Stream) lastFrames(reason EndReason, cause error) ([]byte, EndReason) {
	if cause != nil {
		reason = s.endReasonOf(cause)
	}
	if reason == EndEncodingFailed {
		s.manager.opts.Withdraw(s.source, s.encoding, cause)
	}
	if !reason.Clean() {
		return nil, reason
	}
	var last []byte
	if status := reason.row().status; status != nil {
		var err error
		if last, err = fanout.AppendError(last, s.encoding, status(cause)); err != nil {
			return nil, s.endReasonOf(err)
		}
	}
	if s.encoding.Gzip && len(last) == 0 && s.sentBytes.Load() == 0 {
		last = fanout.AppendNoEvents(last, s.encoding)
	}
	return fanout.AppendEnd(last, s.encoding), reason
}

// poke makes the writer look at the stream, if it is a slot.
func (s *Stream) poke() {
	if slot := s.slot.Load(); slot != nil {
		slot.poke()
	}
}

// RecordEnd has end called when the stream has ended. It is called before the stream is served.
func (s *Stream) RecordEnd(end func()) { s.recordEnd = end }
