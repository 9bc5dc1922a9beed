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
// It sees progress a piece at a time, because h2 reports a piece only when it has taken it as a
// whole. A client that takes less than pieceBytes within the stall timeout is evicted, where
// PacedConn counts every byte.
type PacedWriter struct {
	// EndsConnection reports that the connection ends with an answer of that status, as
	// kube-apiserver has it for requests over HTTP/2 that it does not know the user of; nil: it
	// does not.
	EndsConnection func(code int) bool

	conn *PacedConn // static: below; nil: there is none

	// The handler's.
	stall       time.Duration // 0: the client may take nothing for as long as it likes
	permit      cpuPermit
	wait        ClientWait
	headWritten bool
	timer       *time.Timer // runs while a write waits; nil: none has
	response    *h2.Response

	mu      sync.Mutex
	pin     *pin // the old state that is kept alive for the client; nil: none is. Set by the handler alone
	stalled bool // by evict
	cut     bool // by Cut
	ended   bool // the handler returns: response must not be touched any more
}

// pieceBytes is what HTTP/2 clients take in one frame unless they ask for more: smaller pieces
// would cost frames.
const pieceBytes = 16 << 10

// NewPacedWriter makes a PacedWriter. The handler calls Close before it returns. A stall of 0
// demands nothing of the client.
func NewPacedWriter(w *h2.Response, below *PacedConn, stall time.Duration) *PacedWriter {
	n := &PacedWriter{response: w, conn: below, stall: stall}
	if below != nil {
		n.permit.limiter = below.permit.limiter
	}
	return n
}

// Header implements http.ResponseWriter.
func (n *PacedWriter) Header() http.Header { return n.response.Header() }

// WriteHeader implements http.ResponseWriter.
func (n *PacedWriter) WriteHeader(code int) {
	n.headWritten = n.headWritten || code >= http.StatusOK
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

// Write sends b, of which h2 may hold something back until it is flushed. Once the client falls
// below the pace, it has reset the stream, and returns ErrStalled or why its pin was evicted.
func (n *PacedWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		err := n.sendTimed(len(b), func() error {
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
func (n *PacedWriter) FlushError() error { return n.sendTimed(0, n.response.FlushError) }

// sendTimed calls send, which may have to wait for the client to take so many bytes. Meanwhile it
// holds no CPU permit, and the stall timeout runs.
func (n *PacedWriter) sendTimed(unsent int, send func() error) error {
	if n.permit.held {
		n.permit.limiter.Release()
		defer n.permit.limiter.Acquire()
	}
	if n.stall > 0 {
		n.startTimer()
		defer n.timer.Stop()
	}
	if n.pin != nil {
		n.pin.beginWait()
		defer n.pin.endWait()
	}
	n.wait.begin(unsent)
	defer n.wait.end()
	if err := send(); err != nil {
		return n.ReasonOf(err)
	}
	return nil
}

func (n *PacedWriter) startTimer() {
	timeout := n.eviction().StallTimeout(n.stall)
	if n.timer == nil {
		n.timer = time.AfterFunc(timeout, n.evict)
	} else {
		n.timer.Reset(timeout)
	}
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

// Wait is how long a write has waited for the client.
func (n *PacedWriter) Wait() *ClientWait { return &n.wait }

// Below is the connection below; nil: there is none to ask.
func (n *PacedWriter) Below() *PacedConn { return n.conn }

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
func (n *PacedWriter) HeadWritten() bool { return n.headWritten }

// Pace says how many bytes of old state the answer keeps alive from now on. A large answer, which
// keeps some, holds a CPU permit.
func (n *PacedWriter) Pace(pinned int64) {
	n.permit.setHeld(pinned > 0)
	var next *pin
	if pinned > 0 && n.stall > 0 {
		next = &pin{bytes: pinned}
		next.wake = func() { n.breakPinned(next) }
	}
	n.mu.Lock()
	old := n.pin
	n.pin = next
	n.mu.Unlock()
	n.eviction().unpin(old)
	n.eviction().pin(next)
}

// breakPinned breaks the answer of an evicted pin, unless the pin is over.
func (n *PacedWriter) breakPinned(evicted *pin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pin == evicted {
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

// evict breaks the answer of a client that has not taken a piece in time. While memory is short,
// the reason is that the client is slow, if it pins a state.
func (n *PacedWriter) evict() {
	n.mu.Lock()
	if n.pin != nil && n.eviction().StallTimeout(n.stall) < n.stall {
		n.pin.evicted.CompareAndSwap(nil, &ErrSlow)
	}
	n.mu.Unlock()
	n.reset(&n.stalled)
}

// Cut breaks the answer. A write that waits returns. Any goroutine may call it.
func (n *PacedWriter) Cut() { n.reset(&n.cut) }

// reset breaks the answer, unless it has ended, and notes why.
func (n *PacedWriter) reset(why *bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*why = *why || !n.ended
	n.breakLocked()
}

// breakLocked ends the answer, unless it has ended, so that the client sees that it is not whole: a
// deadline that has passed resets a stream at once.
func (n *PacedWriter) breakLocked() {
	if !n.ended {
		_ = n.response.SetWriteDeadline(time.Unix(1, 0)) // never fails
	}
}

// OnEnd has f called when the stream ends; see h2.Response.
func (n *PacedWriter) OnEnd(f func(error)) (stop func()) { return n.response.OnEnd(f) }

// Keep lets the stream outlive its handler; see h2.Response. Close follows.
func (n *PacedWriter) Keep(k h2.Keeper) (*h2.Stream, error) { return n.response.Keep(k) }

// Close lets go of the answer, so that a stream which is kept beyond its handler holds little.
func (n *PacedWriter) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.response, n.timer = nil, nil
}
