package clientconn

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"spillway/internal/h2"
)

// PacedWriter is the answer on an HTTP/2 stream whose client must keep up, as PacedConn is for a
// whole connection. A client may read one stream and not another, and flow control stops that one
// alone. So each stream has a stall timeout of its own, which runs only while a write waits. A
// client that stops reading a stream gets a reset of it; its other streams go on.
//
// It sees progress a piece at a time, since the writer reports a piece only when it has taken it as
// a whole: a client is evicted that takes less than pieceBytes within the stall timeout, where
// PacedConn counts every byte.
type PacedWriter struct {
	response *h2.Response
	conn     *PacedConn // below; nil if there is none to ask
	stall    time.Duration
	seat     cpuPermit
	began    bool // the head is written
	// EndsConnection reports that the connection ends with an answer of that status, as
	// kube-apiserver has it for requests over HTTP/2 that it does not know the user of; nil: it
	// does not.
	EndsConnection func(code int) bool

	mu      sync.Mutex
	timer   *time.Timer // the handler's; nil: nothing has been written yet
	pin     *pin        // the old state that is kept alive for the client; nil: none is. Set by the handler alone
	stalled bool        // the clock ran out
	cut     bool        // by cut
	ended   bool        // the handler returns: response must not be touched any more
}

// pieceBytes is what HTTP/2 clients take in one frame unless they ask for more: smaller pieces
// would cost frames.
const pieceBytes = 16 << 10

// NewPacedWriter makes a PacedWriter. The handler calls Close before it returns. A stall of 0
// demands nothing of the client.
func NewPacedWriter(w *h2.Response, below *PacedConn, stall time.Duration) *PacedWriter {
	n := &PacedWriter{response: w, conn: below, stall: stall}
	if below != nil {
		n.seat.limiter = below.seat.limiter
	}
	return n
}

// Header implements http.ResponseWriter.
func (n *PacedWriter) Header() http.Header { return n.response.Header() }

// WriteHeader implements http.ResponseWriter.
func (n *PacedWriter) WriteHeader(code int) {
	n.began = n.began || code >= http.StatusOK
	if n.conn != nil && n.conn.strict != nil && n.Header()[StrictTransportSecurityHeader] == nil {
		n.Header().Set(StrictTransportSecurityHeader, *n.conn.strict)
	}
	if code >= http.StatusOK && n.EndsConnection != nil && n.EndsConnection(code) {
		n.Header().Set("Connection", "close") // which becomes GOAWAY
	}
	n.response.WriteHeader(code)
}

// Prove notes that the sender of the request is known.
func (n *PacedWriter) Prove() { n.response.Prove() }

// Write sends b, of which h2 may hold something back until it is flushed. It returns
// ErrStalled, or why its pin was evicted, once the client falls below the pace, and has reset the
// stream.
func (n *PacedWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		err := n.sendTimed(func() error {
			_, err := n.response.Write(piece)
			return err
		})
		if err != nil {
			return written, err
		}
		written, b = written+len(piece), b[len(piece):]
		if n.pin != nil {
			n.pin.addProgress(len(piece), 0)
		}
	}
	return written, nil
}

// FlushError sends what is buffered.
func (n *PacedWriter) FlushError() error { return n.sendTimed(n.response.FlushError) }

// sendTimed calls what may have to wait for the client, without a seat.
func (n *PacedWriter) sendTimed(send func() error) error {
	if n.seat.held {
		n.seat.limiter.Release()
		defer n.seat.limiter.Acquire()
	}
	if n.stall > 0 {
		if after := n.eviction().StallTimeout(n.stall); n.timer == nil {
			n.timer = time.AfterFunc(after, n.evict)
		} else {
			n.timer.Reset(after)
		}
		defer n.timer.Stop()
	}
	if n.pin != nil {
		n.pin.beginWait()
		defer n.pin.endWait()
	}
	if err := send(); err != nil {
		return n.ReasonOf(err)
	}
	return nil
}

// ReasonOf is why a write failed.
func (n *PacedWriter) ReasonOf(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	slow := n.pin.evictionReason()
	switch {
	case slow != nil:
		return slow
	case n.stalled:
		return ErrStalled
	case n.cut:
		err = errors.Join(net.ErrClosed, err)
	}
	return n.conn.ReasonOf(err)
}

// Below is the connection below; nil: there is none to ask.
func (n *PacedWriter) Below() *PacedConn { return n.conn }

// ReasonOf is why what is sent on the connection failed, whose error is err. Nil knows no better.
func (c *PacedConn) ReasonOf(err error) error {
	if c != nil && c.stalled.Load() {
		return ErrStalled
	}
	return err
}

// SuspendPace ends all demands on the client: what passes through for long may pause as long as its
// own rules allow. resume demands progress again.
func (n *PacedWriter) SuspendPace() (resume func()) {
	stall := n.stall
	n.stall = 0
	return func() { n.stall = stall }
}

// SetReadDeadline limits the time for the request's body.
func (n *PacedWriter) SetReadDeadline(t time.Time) error { return n.response.SetReadDeadline(t) }

// HeadWritten reports that the answer has begun.
func (n *PacedWriter) HeadWritten() bool { return n.began }

// Pace demands progress from now on. An answer that keeps so many bytes of old state alive has a
// seat meanwhile.
func (n *PacedWriter) Pace(pinned int64) {
	n.seat.setHeld(pinned > 0)
	var next *pin
	if pinned > 0 && n.stall > 0 {
		next = &pin{bytes: pinned}
		next.wake = func() { n.end(next) }
	}
	n.mu.Lock()
	before := n.pin
	n.pin = next
	n.mu.Unlock()
	n.eviction().unpin(before)
	n.eviction().pin(next)
}

// end resets the stream of an evicted pin, unless the pin is over.
func (n *PacedWriter) end(condemned *pin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pin == condemned {
		n.breakLocked()
	}
}

// eviction is the policy of the connection below; nil: none.
func (n *PacedWriter) eviction() *EvictionPolicy {
	if n.conn == nil {
		return nil
	}
	return n.conn.eviction
}

// evict ends the answer of a client that has not taken a piece in time. While memory is short that
// says that it is slow, if it pins a state.
func (n *PacedWriter) evict() {
	n.mu.Lock()
	if n.pin != nil && n.eviction().StallTimeout(n.stall) < n.stall {
		n.pin.evicted.CompareAndSwap(nil, &ErrSlow)
	}
	n.mu.Unlock()
	n.reset(&n.stalled)
}

// Cut ends the answer so that the client sees that it has no end. A write that waits returns. Any
// goroutine may call it.
func (n *PacedWriter) Cut() { n.reset(&n.cut) }

// reset notes why, and breaks the answer: a deadline that has passed resets a stream at once.
func (n *PacedWriter) reset(why *bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*why = *why || !n.ended
	n.breakLocked()
}

func (n *PacedWriter) breakLocked() {
	if !n.ended {
		_ = n.response.SetWriteDeadline(time.Unix(1, 0)) // never fails
	}
}

// OnEnd has f called when the stream ends; see h2.Response.
func (n *PacedWriter) OnEnd(f func(error)) (stop func()) { return n.response.OnEnd(f) }

// Keep lets the stream outlive its handler; see h2.Response. Close follows.
func (n *PacedWriter) Keep(k h2.Keeper) (*h2.Stream, error) { return n.response.Keep(k) }

// Close lets go of the answer. A stream that is kept beyond its handler holds nothing but its
// pace's end.
func (n *PacedWriter) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.response, n.timer = nil, nil
}

// StrictTransportSecurityHeader is a header that keeps browsers from plain HTTP (RFC 6797). As in
// kube-apiserver it is in every answer that does not have one already, if there are directives for
// it; and in none over a connection without TLS, where it must not be (section 7.2).
const StrictTransportSecurityHeader = "Strict-Transport-Security"

// StrictTransportSecurity is what the answers on a connection say in that header; "" if nothing.
func StrictTransportSecurity(c net.Conn) string {
	if p := PacedConnOf(c); p != nil && p.strict != nil {
		return *p.strict
	}
	return ""
}
