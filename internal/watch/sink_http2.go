package watch

import (
	"net"
	"net/http"
	"sync/atomic"

	"spillway/internal/clientconn"
	"spillway/internal/h2"
)

// http2Sink is where a watch on an HTTP/2 stream goes. It ends with its handler, unless a writer
// has taken it over: then it owns the stream, and is where the writer's slot sends to, the outbox
// of the connection, as far as the client's windows allow. The writer flushes the connection after
// other slots have had their turns, so that the events of all its streams are one send.
//
// There is one for each watch, for as long as it lasts: it drops what only the handler needs.
type http2Sink struct {
	// Static after construction.
	stream  *Stream
	address string // the client's
	conn    *clientconn.PacedConn

	answer     atomic.Pointer[http2Answer] // nil once it is kept
	keptStream atomic.Pointer[h2.Stream]   // nil until it is
	writer     *writer                     // static once it is kept
}

// http2Answer is what a sink needs until it is kept.
type http2Answer struct {
	*clientconn.PacedWriter
	setHead   func()
	stopOnEnd func() // what PacedWriter.OnEnd returned
}

// ServeHTTP2 is Serve for the client at an address, whose answer w writes.
func (s *Stream) ServeHTTP2(w *clientconn.PacedWriter, address string, headers HeadersFunc) {
	n := &http2Sink{stream: s, address: address, conn: w.Below()}
	n.answer.Store(&http2Answer{
		PacedWriter: w,
		setHead:     func() { SetHeaders(s, headers, w.Header().Set) },
		stopOnEnd:   w.OnEnd(func(err error) { s.clientLeft(w.ReasonOf(err)) }),
	})
	s.Serve(n, func(take, _ func()) { take() })
}

// clientLeft stops the stream, because its connection or HTTP/2 stream has ended. If it was cut for
// a slow client, that is the reason.
func (s *Stream) clientLeft(err error) {
	if reason := ReasonOf(err); reason.EvictionMessage() != "" {
		s.Stop(reason)
	}
	s.Stop(EndClientClosed)
}

// Ended implements h2.Keeper.
func (n *http2Sink) Ended(err error) { n.stream.clientLeft(n.conn.ReasonOf(err)) }

// end implements sink.
func (n *http2Sink) end(reason EndReason, _ bool) {
	if a := n.answer.Load(); a != nil {
		a.stopOnEnd()
	}
	kept := n.keptStream.Load()
	if kept != nil {
		kept.Release()
	}
	switch {
	case !reason.Clean():
		n.cut()
	case kept != nil:
		kept.End()
	}
}

func (n *http2Sink) begin() error {
	a := n.answer.Load()
	a.setHead()
	a.WriteHeader(http.StatusOK)
	return a.FlushError()
}

// Write sends a run of frames at once. A sink that is kept fails: its writer has ended meanwhile.
func (n *http2Sink) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	a := n.answer.Load()
	if a == nil {
		return 0, net.ErrClosed
	}
	written, err := a.Write(b)
	if err != nil {
		return written, err
	}
	return written, a.FlushError()
}

// Pace implements sink.
func (n *http2Sink) Pace(pinned int64) { n.answer.Load().Pace(pinned) }

func (n *http2Sink) wait() *clientconn.ClientWait { return n.answer.Load().Wait() }

func (n *http2Sink) protocol() string { return "HTTP/2" }

func (n *http2Sink) client() string { return n.address }

func (n *http2Sink) port(w *writer) (port, bool) {
	a := n.answer.Load()
	kept, err := a.Keep(n)
	if err != nil {
		return port{}, false
	}
	n.writer = w
	n.keptStream.Store(kept)
	a.stopOnEnd()
	a.Close() // its clock evicts no longer
	if err := a.ReasonOf(nil); err != nil {
		n.stream.clientLeft(err)
	}
	n.answer.Store(nil)
	return port{out: n}, true
}

// cut implements sink. Meanwhile it may become kept.
func (n *http2Sink) cut() {
	if a := n.answer.Load(); a != nil {
		a.Cut()
	}
	if kept := n.keptStream.Load(); kept != nil {
		kept.Reset()
	}
}

// offer implements nonblockingSender.
func (n *http2Sink) offer(b []byte) (int, error) {
	kept := n.keptStream.Load()
	taken, err := kept.Offer(b)
	if taken > 0 {
		n.writer.unflushed.add(kept.Conn())
	}
	return taken, err
}

// park implements nonblockingSender.
func (n *http2Sink) park(room func()) { n.keptStream.Load().Park(room) }
