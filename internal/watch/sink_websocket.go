package watch

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/websocket"
)

// WebSocketSink is an HTTP/1.1 connection that has become a WebSocket, which ends with its stream.
//
// The stream's deliverer writes events. A goroutine of the sink reads what the client sends, from
// begin until the connection is closed, and writes pongs and the answer to the client's close
// frame. Each write is one or more whole frames, under a mutex.
//
// Writers, which serve most watches, do not serve it, for two reasons. A reader of TLS may have to
// write at the same time, because it answers a key update. And a pong must not get into the middle
// of an event's frame of which a full socket has taken only a part.
type WebSocketSink struct {
	Conn         net.Conn
	Head         []byte // until it is sent
	Early        []byte // what the client sent behind its handshake, until the reader has it
	StallTimeout time.Duration
	Stream       *Stream
	Panicked     func(p any)

	reader chan struct{} // closed once the reader has ended; nil: it was not started

	mu       sync.Mutex // of writes
	isClosed bool       // the client has sent its close frame, and has the answer: nothing follows
}

// begin sends the handshake and starts to read.
func (w *WebSocketSink) begin() error {
	head, early := w.Head, w.Early
	w.Head, w.Early = nil, nil
	if _, err := w.Write(head); err != nil {
		return err
	}
	w.reader = make(chan struct{})
	go w.read(early)
	return nil
}

// Write implements sink.
func (w *WebSocketSink) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return 0, net.ErrClosed
	}
	return w.Conn.Write(b)
}

// Pace implements sink.
func (w *WebSocketSink) Pace(pinned int64) { setPace(w.Conn, w.StallTimeout, pinned) }

func (w *WebSocketSink) wait() *clientconn.ClientWait { return clientconn.PacedConnOf(w.Conn).Wait() }

func (w *WebSocketSink) cut() { cutConn(w.Conn) }

func (w *WebSocketSink) port(*writer) (port, bool) { return port{}, false }

func (w *WebSocketSink) protocol() string { return "WebSocket" }

func (w *WebSocketSink) client() string { return w.Conn.RemoteAddr().String() }

// read answers the client's frames until there are no more, and stops the stream then.
func (w *WebSocketSink) read(early []byte) {
	defer close(w.reader)
	defer func() {
		if p := recover(); p != nil {
			w.Panicked(p)
			w.Stream.Stop(EndAborted)
		}
	}()
	in := websocket.NewReader(io.MultiReader(bytes.NewReader(early), w.Conn))
	var pong []byte
	for {
		payload, err := in.Ping()
		pong = websocket.AppendPong(pong[:0], payload)
		if !w.answer(pong, err) {
			return
		}
	}
}

// answer sends a pong. It reports false, and has stopped the stream, if that fails, or if err says
// that the client closed the WebSocket or that its connection failed. The reason is settled before
// the deliverer can write, which fails then, too; and a client that closed the WebSocket gets the
// answer to that before the deliverer can close the connection.
func (w *WebSocketSink) answer(pong []byte, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.Conn.Write(pong)
	}
	if err != nil {
		w.endStreamLocked(err)
	}
	return err == nil
}

// endStreamLocked stops the stream.
func (w *WebSocketSink) endStreamLocked(err error) {
	switch {
	case errors.Is(err, websocket.ErrClosed), errors.Is(err, websocket.ErrUnmasked):
		if w.Stream.Reason() != "" { // the deliverer ends the stream already, with a close frame of its own
			return
		}
		_, _ = w.Conn.Write([]byte(websocket.CloseFrames(err))) // the client may be gone altogether
		w.isClosed = true
		w.Stream.Stop(EndClientClosed)
	case errors.Is(err, net.ErrClosed): // end has closed it, so the stream has a reason already
		w.Stream.Stop(EndAborted)
	default:
		reason := ReasonOf(err)
		if reason == EndAborted {
			reason = EndClientClosed
		}
		w.Stream.Stop(reason)
	}
}

// end ends the connection, and returns when nothing is read any more. If the reason is clean, or
// the client has the close frame, the connection is closed normally. Otherwise it is reset, so that
// the client sees an abort.
func (w *WebSocketSink) end(reason EndReason, _ bool) {
	w.mu.Lock()
	clean := reason.Clean() || w.isClosed
	w.mu.Unlock()
	if clean {
		_ = w.Conn.Close() // its error concerns a client that has left
	} else {
		clientconn.ResetConn(w.Conn)
	}
	if w.reader != nil {
		<-w.reader
	}
}
