package watch

import (
	"net/http"
	"sync/atomic"

	"spillway/internal/clientconn"
	"spillway/internal/h2"
)

// StreamSink is where a watch on an HTTP/2 stream goes. It ends with its handler, unless a writer
// has taken it over.
type StreamSink struct {
	*clientconn.PacedWriter
	Head    func() // sets the headers of the answer
	Address string
	kept    atomic.Pointer[h2.Stream] // the writer's
}

func (n *StreamSink) begin() error {
	n.Head()
	n.Head = nil
	n.WriteHeader(http.StatusOK)
	return n.FlushError()
}

// Write sends a run of frames at once.
func (n *StreamSink) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	written, err := n.PacedWriter.Write(b)
	if err != nil {
		return written, err
	}
	return written, n.FlushError()
}

func (n *StreamSink) protocol() string { return "HTTP/2" }

func (n *StreamSink) client() string { return n.Address }

func (n *StreamSink) port(w *writer) (port, bool) {
	response, ok := n.ResponseWriter.(*h2.Response)
	if !ok {
		return port{}, false
	}
	kept, err := response.Keep()
	if err != nil {
		return port{}, false
	}
	n.kept.Store(kept)
	return port{out: keptStream{kept, w}}, true
}

// cut implements sink.
func (n *StreamSink) cut() {
	if kept := n.kept.Load(); kept != nil {
		kept.Reset()
		return
	}
	n.PacedWriter.Cut()
}

// Over ends what is kept, and cuts what has no end.
func (n *StreamSink) Over(clean bool) {
	switch kept := n.kept.Load(); {
	case !clean:
		n.cut()
	case kept != nil:
		kept.End()
	}
}

// keptStream is what a slot on HTTP/2 sends to: the outbox of its connection, as far as the
// client's windows allow. The writer flushes the connection after other slots have had their
// turns, so that the events of all its streams are one send.
type keptStream struct {
	*h2.Stream
	writer *writer
}

func (k keptStream) offer(b []byte) (int, error) {
	n, err := k.Offer(b)
	if n > 0 {
		k.writer.unflushed.add(k.Conn())
	}
	return n, err
}

func (k keptStream) park(room func()) { k.Park(room) }
