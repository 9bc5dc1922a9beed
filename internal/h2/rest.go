package h2

import (
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// rests are the answers that their handlers have left: small ones, which are complete and which the
// client does not take, so that an answer of some bytes does not keep a handler with all that it
// holds. Each is its stream and those bytes, for as long as its client may take nothing. Guarded by
// Conn.mu.
type rests struct {
	streams map[*Stream]struct{}
	clock   *time.Timer // nil: it does not run
}

// restInterval is how often is looked whether one has waited for too long.
const restInterval = time.Second

// whole reports that the answer's body is complete and small, and that nothing of it has been sent.
func (w *Response) whole() bool {
	return w.sent != nil && w.announced() == w.written && int64(len(w.held)) == w.written && w.written > 0
}

// leavable reports that what is left of the answer is at hand, that nothing follows it, and that
// the handler has set no time for it, which would have to be kept.
func (w *Response) leavable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held) > 0 && len(w.trailers) == 0 && w.request.Method != http.MethodHead && w.status != 0 &&
		w.deadline == nil
}

// leave sends the end of an answer as far as the client takes it, and has the stream keep the rest.
func (w *Response) leave() error {
	if !w.began {
		w.began = true
		if err := w.sendHead(w.status, w.complete(w.held, true), false); err != nil {
			return err
		}
	}
	s := w.stream
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	if s.err != nil {
		return s.err
	}
	n := c.put(s, w.held, true, c.full())
	c.flush()
	if n == len(w.held) {
		s.finish()
		return nil
	}
	c.ledger.free(&s.claim) // the handler's: it returns
	shut := s.window <= 0 || c.window <= 0
	full := shut && c.unproven() && len(c.rests.streams) >= unprovenRests
	if full || !c.ledger.grow(&s.claim, restCost+int64(len(w.held)-n)) {
		s.reset(http2.ErrCodeEnhanceYourCalm, errDone)
		return s.err
	}
	s.rest, s.rested = append([]byte(nil), w.held[n:]...), time.Now()
	c.rests.enter(c, s)
	s.wait(s.window > 0)
	return nil
}

// resume sends more of the rest of an answer. Called with mu held.
func (s *Stream) resume() {
	c := s.conn
	n := c.put(s, s.rest, true, c.full())
	if n > 0 {
		s.rested = time.Now()
	}
	c.flush()
	if s.rest = s.rest[n:]; len(s.rest) == 0 {
		s.rest = nil
		c.rests.leave(s)
		s.finish()
		return
	}
	s.wait(s.window > 0)
}

// handled follows the end of a request's handler, which had its head.
func (s *Stream) handled(kept bool) {
	if s.rest == nil {
		s.conn.ledger.free(&s.claim)
	}
	s.left = kept
	s.letGo()
}

// letGo releases the exchange of a kept stream, once its handler has returned and its request is
// whole: a trailer may have come since.
func (s *Stream) letGo() {
	if s.left && s.heard {
		s.conn.ledger.free(&s.claim)
		s.cancel(errDone)
		s.exchange = nil
	}
}

func (r *rests) enter(c *Conn, s *Stream) {
	if r.streams == nil {
		r.streams = map[*Stream]struct{}{}
	}
	r.streams[s] = struct{}{}
	if r.clock == nil && c.opts.Stall != nil && c.err == nil {
		r.clock = time.AfterFunc(restInterval, func() { c.lookAtRests() })
	}
}

func (r *rests) leave(s *Stream) {
	if _, found := r.streams[s]; !found {
		return
	}
	delete(r.streams, s)
	s.rest = nil
	s.conn.ledger.free(&s.claim)
	if len(r.streams) == 0 {
		r.streams = nil
		r.stop()
	}
}

func (r *rests) stop() {
	if r.clock != nil {
		r.clock.Stop()
		r.clock = nil
	}
}

// lookAtRests resets the streams whose clients have taken nothing for too long.
func (c *Conn) lookAtRests() {
	stall := c.opts.Stall()
	c.mu.Lock()
	defer c.unlock()
	for s := range c.rests.streams {
		if stall > 0 && time.Since(s.rested) >= stall {
			s.reset(http2.ErrCodeCancel, errDone)
		}
	}
	if c.rests.clock != nil && len(c.rests.streams) > 0 {
		c.rests.clock.Reset(restInterval)
	}
}
