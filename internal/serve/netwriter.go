package serve

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"spillway/internal/h2"
)

// netWriter is an answer of net/http whose client must keep up, as conn is for a whole connection. On HTTP/2 a client may take
// one stream and leave another, and flow control then holds that one back alone; so each has a clock of its own, which runs
// only while a write waits. Whoever stops taking is told by a reset of his stream; his others go on.
//
// It sees progress a piece at a time, since net/http says nothing of a piece before it has gone out as a whole: a client is
// evicted that takes less than pieceNet within the stall timeout, where conn counts every byte.
type netWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	conn    *conn // below; nil if there is none to ask
	stall   time.Duration
	rate    *pace // nil: any progress will do
	seat    seat
	began   bool // the head is written
	// parts reports that the connection ends with an answer of that status, as kube-apiserver has it for requests over
	// HTTP/2 that it does not know the user of; nil: it does not.
	parts func(code int) bool

	mu      sync.Mutex
	timer   *time.Timer
	stalled bool // the clock ran out
	severed bool // by cut
	over    bool // the handler returns: net/http's writer must not be touched any more
}

// pieceNet is what HTTP/2 clients take in one frame unless they ask for more: smaller pieces would cost frames.
const pieceNet = 16 << 10

// newNetWriter makes a netWriter. Over it with close, before the handler returns. A stall of 0 demands nothing of the client.
func newNetWriter(w http.ResponseWriter, below *conn, stall time.Duration) *netWriter {
	n := &netWriter{ResponseWriter: w, control: http.NewResponseController(w), conn: below, stall: stall}
	if below != nil {
		n.seat.of = below.seat.of
	}
	n.timer = time.AfterFunc(time.Hour, n.evict)
	n.timer.Stop()
	return n
}

// Unwrap lets http.ResponseController reach the writer below.
func (n *netWriter) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (n *netWriter) WriteHeader(code int) {
	n.began = n.began || code >= http.StatusOK
	if n.conn != nil && n.conn.strict != nil && n.Header()[strictTransportSecurity] == nil {
		n.Header().Set(strictTransportSecurity, *n.conn.strict)
	}
	if code >= http.StatusOK && n.parts != nil && n.parts(code) {
		n.Header().Set("Connection", "close") // which becomes GOAWAY
	}
	n.ResponseWriter.WriteHeader(code)
}

// proven notes that it is known who sent the request.
func (n *netWriter) proven() {
	if response, ok := n.ResponseWriter.(*h2.Response); ok {
		response.Prove()
	}
}

// Write sends b, of which net/http may hold something back until it is flushed. It returns errStalled once the client falls below the pace, and has reset the stream.
func (n *netWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		piece := b[:min(len(b), pieceNet)]
		err := n.timed(func() error {
			_, err := n.ResponseWriter.Write(piece)
			return err
		})
		if err != nil {
			return written, err
		}
		written, b = written+len(piece), b[len(piece):]
		if n.tooSlow(len(piece)) {
			n.evict()
			return written, errStalled
		}
	}
	return written, nil
}

// FlushError sends what is buffered.
func (n *netWriter) FlushError() error { return n.timed(n.control.Flush) }

// timed does what may have to wait for the client, without a seat: what there is to send is net/http's work, whoever makes it.
func (n *netWriter) timed(send func() error) error {
	if n.seat.taken {
		n.seat.of.give()
		defer n.seat.of.take()
	}
	if n.stall > 0 {
		n.timer.Reset(n.haste().stall(n.stall))
		defer n.timer.Stop()
	}
	began := time.Now()
	err := send()
	if n.rate != nil {
		n.rate.spent += time.Since(began)
	}
	if err != nil {
		return n.cause(err)
	}
	return nil
}

// cause is why a write failed.
func (n *netWriter) cause(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.stalled, n.conn != nil && n.conn.stalled.Load():
		return errStalled
	case n.severed:
		return errors.Join(net.ErrClosed, err)
	}
	return err
}

// impatient demands progress again, within a stall timeout.
func (n *netWriter) impatient(stall time.Duration) { n.stall = stall }

// patient ends all demands on the client: what passes through for long may pause as long as its own rules allow.
func (n *netWriter) patient() { n.stall = 0 }

// pace demands progress from now on: any at all, or, while old state is kept alive, a rate. Who keeps it alive has a seat meanwhile.
func (n *netWriter) pace(pins bool) {
	n.seat.want(pins)
	n.rate = nil
	if pins && n.stall > 0 {
		n.rate = &pace{stall: n.stall, pins: true}
	}
}

func (n *netWriter) tooSlow(taken int) bool {
	if n.rate == nil {
		return false
	}
	n.rate.taken += int64(taken)
	return n.rate.tooSlow(n.haste())
}

// haste is that of the connection below.
func (n *netWriter) haste() *haste {
	if n.conn == nil {
		return nil
	}
	return n.conn.haste
}

func (n *netWriter) evict() { n.reset(&n.stalled) }

// cut ends the answer so that the client sees that it has no end. A write that waits returns. Any goroutine may call it.
func (n *netWriter) cut() { n.reset(&n.severed) }

// reset notes why, and breaks the answer: for a deadline that has passed, net/http resets an HTTP/2 stream at once.
func (n *netWriter) reset(why *bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		*why = true
		_ = n.control.SetWriteDeadline(time.Unix(1, 0)) // fails where there is nothing left to break
	}
}

// close lets go of the answer.
func (n *netWriter) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
}
