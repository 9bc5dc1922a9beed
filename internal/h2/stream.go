package h2

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// errDone says that a stream has ended as it should.
var errDone = errors.New("the stream has ended")

// Stream is one request and its answer.
type Stream struct {
	// Static after construction.
	conn *Conn
	id   uint32

	// Guarded by conn.mu.
	requestEnded bool // the client has sent all of it
	trailing     bool // its trailer has come
	headSent     bool // the head of the answer has gone
	waiting      bool // for room, in the outbox's list
	window       int64
	inflow       inflow
	err          error  // why it has ended; nil: it has not
	keeper       Keeper // of a stream that is kept; nil: there is none
	onRoom       func() // the owner's, once it waits for room
	*exchange
}

// exchange is what a stream needs for its handler, and until the request is whole. A kept stream
// lets go of it: there are many, and they last.
type exchange struct {
	// Static after construction.
	cancel context.CancelCauseFunc // of the request's context
	body   *body                   // nil: the request has none

	// Guarded by conn.mu.
	onEnd            []*endFunc    // see Response.OnEnd
	wake             chan struct{} // the handler's, once it waits for room
	claim            claim         // of its head, until no handler has it, and then of what it rests on
	call             *call         // it waits for a handler
	handlerReturned  bool          // the stream is kept, and its handler has returned
	remainder        []byte        // of the answer, that its handler has left
	remainderTakenAt time.Time     // when the client last took some of it
}

// Keeper is the owner of a stream that outlives its handler.
type Keeper interface {
	// Ended is called once when the stream ends, with the reason, on a goroutine of its own. It is
	// not called if Release was.
	Ended(err error)
}

// Release lets go of the stream's keeper. Any goroutine may call it.
func (s *Stream) Release() {
	s.conn.mu.Lock()
	defer s.conn.unlockAndFlush()
	s.keeper = nil
}

// write sends b, and ends the stream after it if end says so. It waits for room, until the stream
// ends.
func (s *Stream) write(b []byte, end bool) error {
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	for {
		if s.err != nil {
			return s.err
		}
		n := c.putDataLocked(s, b, end, c.outboxLimitLocked())
		if b = b[n:]; len(b) == 0 {
			if end {
				s.finishLocked()
			}
			return nil
		}
		s.requestRoomLocked()
		s.sleepLocked()
	}
}

// awaitOutboxLocked waits until a head may be put into the outbox, or the stream ends. Heads have
// no window: without waiting, a client that asks and never reads would pile them up.
func (s *Stream) awaitOutboxLocked() error {
	for s.err == nil && s.conn.outbox.len() >= s.conn.outboxLimitLocked() {
		s.joinWaitingLocked()
		s.sleepLocked()
	}
	return s.err
}

// sleepLocked waits for notifyLocked. It releases mu meanwhile.
func (s *Stream) sleepLocked() {
	c := s.conn
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	c.unlockAndFlush()
	<-s.wake
	c.mu.Lock()
}

// Conn is the connection of the stream.
func (s *Stream) Conn() *Conn { return s.conn }

// Offer puts what there is room for into the outbox, and returns how much of b that is. Conn.Flush
// sends it, so that what several streams offer is one send. Only a kept stream's owner may call it,
// as all that follow.
func (s *Stream) Offer(b []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock() // Conn.Flush sends what was put
	if s.err != nil {
		return 0, s.err
	}
	return c.putDataLocked(s, b, false, 2*c.outboxLimitLocked()), nil
}

// Park lets room be called once, as soon as there is some. room must not block, and not call back.
func (s *Stream) Park(room func()) {
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	if s.err != nil || s.window > 0 && c.window > 0 && c.outbox.len() < 2*c.outboxLimitLocked() {
		room()
		return
	}
	s.onRoom = room
	s.requestRoomLocked()
}

// End ends the answer as it should.
func (s *Stream) End() {
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	if s.err == nil {
		c.putDataLocked(s, nil, true, 0)
		s.finishLocked()
	}
}

// Reset ends the answer so that the client sees that it has no end. Any goroutine may call it.
func (s *Stream) Reset() {
	s.conn.mu.Lock()
	defer s.conn.unlockAndFlush()
	s.resetLocked(http2.ErrCodeInternal, errDone)
}

// resetLocked ends the stream and sends the reason to the client.
func (s *Stream) resetLocked(code http2.ErrCode, err error) {
	if s.err != nil {
		return
	}
	c := s.conn
	c.checkFloodLocked()
	_ = c.framer.WriteRSTStream(s.id, code)
	c.notifySenderLocked()
	s.closeLocked(err)
}

// finishLocked follows the end of the answer. A client that is still sending gets NO_ERROR: its
// body is not read any more (RFC 9113, section 8.1).
func (s *Stream) finishLocked() {
	if !s.requestEnded {
		s.resetLocked(http2.ErrCodeNo, errDone)
		return
	}
	s.closeLocked(errDone)
}

// closeLocked lets go of the stream.
func (s *Stream) closeLocked(err error) {
	if s.err != nil {
		return
	}
	c := s.conn
	s.err = err
	delete(c.streams, s.id)
	if s.exchange != nil {
		s.endExchangeLocked(err)
	}
	if keeper := s.keeper; keeper != nil {
		s.keeper = nil
		go keeper.Ended(err)
	}
	if s.waiting {
		s.waiting = false
		c.outbox.waiting = slices.DeleteFunc(c.outbox.waiting, func(w *Stream) bool { return w == s })
	}
	s.notifyLocked()
	if len(c.streams) == 0 {
		c.keepalive.streamsClosed()
	}
	if c.err == nil {
		c.closeWhenIdleLocked()
	}
}

// endExchangeLocked ends what the handler has of the stream.
func (s *Stream) endExchangeLocked(err error) {
	c := s.conn
	s.cancel(err)
	for _, e := range s.onEnd {
		go e.call(err)
	}
	s.onEnd = nil
	c.remainders.remove(s)
	if one := s.call; one != nil { // it never gets a handler
		s.call, one.request = nil, nil
		c.ledger.free(&s.claim)
	}
	if s.body != nil {
		s.body.fail(err)
	}
}

// endHandlerLocked follows the end of a request's handler, which had its head.
func (s *Stream) endHandlerLocked(kept bool) {
	if s.remainder == nil {
		s.conn.ledger.free(&s.claim)
	}
	s.handlerReturned = kept
	s.releaseExchangeLocked()
}

// releaseExchangeLocked releases the exchange of a kept stream, once its handler has returned and
// its request is whole: a trailer may have come since.
func (s *Stream) releaseExchangeLocked() {
	if s.handlerReturned && s.requestEnded {
		s.conn.ledger.free(&s.claim)
		s.cancel(errDone)
		s.exchange = nil
	}
}

// requestRoomLocked has notifyLocked called once there may be room for data. A stream whose own
// window is shut needs none: notifyLocked is called when that opens.
func (s *Stream) requestRoomLocked() {
	if s.window > 0 {
		s.joinWaitingLocked()
	}
}

// joinWaitingLocked has notifyLocked called once there may be room in the outbox, or in the
// connection's window.
func (s *Stream) joinWaitingLocked() {
	if !s.waiting {
		s.waiting = true
		s.conn.outbox.waiting = append(s.conn.outbox.waiting, s)
	}
}

// notifyLocked wakes the owner or the handler: there may be room, or there never will be.
func (s *Stream) notifyLocked() {
	if s.exchange != nil && s.remainder != nil && s.err == nil {
		s.sendRemainderLocked()
		return
	}
	if room := s.onRoom; room != nil {
		s.onRoom = nil
		room()
	}
	if s.exchange != nil && s.wake != nil {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// wakeWaitingLocked wakes the streams that wait for room.
func (c *Conn) wakeWaitingLocked() {
	waiting := c.outbox.waiting
	c.outbox.waiting = nil
	for _, s := range waiting {
		s.waiting = false
		s.notifyLocked()
	}
}

// putDataLocked puts as much of b as the windows allow, and as a limit of bytes in the outbox
// allows. It returns how much that is. end ends the stream with the last byte.
func (c *Conn) putDataLocked(s *Stream, b []byte, end bool, outboxLimit int) int {
	taken := 0
	for {
		n := min(len(b)-taken, c.maxFrame)
		if n > 0 {
			n = int(min(int64(n), s.window, c.window, int64(outboxLimit-c.outbox.len())))
			if n <= 0 {
				break
			}
		}
		taken += n
		last := taken == len(b)
		if n > 0 || end {
			c.outbox.putData(s.id, b[taken-n:taken], end && last)
		}
		s.window -= int64(n)
		c.window -= int64(n)
		if last {
			break
		}
	}
	c.notifySenderLocked()
	return taken
}
