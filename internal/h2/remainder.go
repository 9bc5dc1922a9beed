package h2

import (
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// remainders are the streams whose handlers have returned before their answers were sent: small
// answers, which are complete and which the client does not take, so that an answer of some bytes
// does not keep a handler with all that it holds. Each is its stream and those bytes, for as long
// as its client may take nothing. Guarded by Conn.mu.
type remainders struct {
	streams map[*Stream]struct{}
	clock   *time.Timer // runs checkRemainders; nil: it is not needed
}

// remainderInterval is how often checkRemainders looks whether one has waited for too long.
const remainderInterval = time.Second

// isHeldComplete reports that the answer's body is complete and small, and that nothing of it has
// been sent.
func (w *Response) isHeldComplete() bool {
	return w.sent != nil && w.announcedLength() == w.written && int64(len(w.held)) == w.written && w.written > 0
}

// canLeaveRemainder reports that what is left of the answer is at hand, that nothing follows it,
// and that the handler has set no time for it, which would have to be kept.
func (w *Response) canLeaveRemainder() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held) > 0 && len(w.trailers) == 0 && w.request.Method != http.MethodHead && w.status != 0 &&
		w.deadline == nil
}

// leaveRemainder sends the end of an answer as far as the client takes it, and has the stream keep
// the rest.
func (w *Response) leaveRemainder() error {
	if !w.headSent {
		w.headSent = true
		if err := w.sendHead(w.status, w.completeHead(w.held, true), false); err != nil {
			return err
		}
	}
	s := w.stream
	c := s.conn
	c.mu.Lock()
	defer c.unlockAndFlush()
	if s.err != nil {
		return s.err
	}
	n := c.putDataLocked(s, w.held, true, c.outboxLimitLocked())
	if n == len(w.held) {
		s.finishLocked()
		return nil
	}
	c.ledger.free(&s.claim) // the handler's: it returns
	shut := s.window <= 0 || c.window <= 0
	full := shut && c.isUnprovenLocked() && len(c.remainders.streams) >= unprovenRemainders
	if full || !c.ledger.grow(&s.claim, remainderCost+int64(len(w.held)-n)) {
		s.resetLocked(http2.ErrCodeEnhanceYourCalm, errDone)
		return s.err
	}
	s.remainder, s.remainderTakenAt = append([]byte(nil), w.held[n:]...), time.Now()
	c.remainders.add(c, s)
	s.requestRoomLocked()
	return nil
}

// sendRemainderLocked sends more of the rest of an answer.
func (s *Stream) sendRemainderLocked() {
	c := s.conn
	n := c.putDataLocked(s, s.remainder, true, c.outboxLimitLocked())
	if n > 0 {
		s.remainderTakenAt = time.Now()
	}
	if s.remainder = s.remainder[n:]; len(s.remainder) == 0 {
		s.remainder = nil
		c.remainders.remove(s)
		s.finishLocked()
		return
	}
	s.requestRoomLocked()
}

func (r *remainders) add(c *Conn, s *Stream) {
	if r.streams == nil {
		r.streams = map[*Stream]struct{}{}
	}
	r.streams[s] = struct{}{}
	if r.clock == nil && c.opts.Stall != nil && c.err == nil {
		r.clock = time.AfterFunc(remainderInterval, c.checkRemainders)
	}
}

func (r *remainders) remove(s *Stream) {
	if _, found := r.streams[s]; !found {
		return
	}
	delete(r.streams, s)
	s.remainder = nil
	s.conn.ledger.free(&s.claim)
	if len(r.streams) == 0 {
		r.streams = nil
		r.stop()
	}
}

func (r *remainders) stop() {
	if r.clock != nil {
		r.clock.Stop()
		r.clock = nil
	}
}

// checkRemainders resets the streams whose clients have taken nothing for too long.
func (c *Conn) checkRemainders() {
	stall := c.opts.Stall()
	c.mu.Lock()
	defer c.unlockAndFlush()
	for s := range c.remainders.streams {
		if stall > 0 && time.Since(s.remainderTakenAt) >= stall {
			s.resetLocked(http2.ErrCodeCancel, errDone)
		}
	}
	if c.remainders.clock != nil && len(c.remainders.streams) > 0 {
		c.remainders.clock.Reset(remainderInterval)
	}
}
