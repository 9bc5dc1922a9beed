package http1

import (
	"errors"
	"net"
	"time"

	"spillway/internal/clientconn"
	"spillway/internal/watch"
	"spillway/internal/websocket"
)

// handshake is that of a request for a WebSocket which upstream would agree to.
func (c Call) handshake() (websocket.Handshake, bool) {
	h := &c.ctx.Request.Header
	if len(h.Peek("Upgrade")) == 0 {
		return websocket.Handshake{}, false
	}
	return websocket.HandshakeOf(string(h.Host()), func(name string) []string {
		var values []string
		for _, v := range h.PeekAll(name) {
			values = append(values, string(v))
		}
		return values
	})
}

// watchWebSocket takes the connection away from fasthttp and makes it the WebSocket of a stream.
func (c Call) watchWebSocket(st *watch.Stream, h websocket.Handshake) {
	s := c.server
	out := &watch.WebSocketSink{
		StallTimeout: s.opts.StallTimeout, Head: h.Answer(), Stream: st, Panicked: s.opts.Panicked,
	}
	st.Serve(out, func(take, lost func()) {
		hijack(c.ctx, func(conn net.Conn) {
			early, err := earlyBytes(conn)
			out.Conn, out.Early = unwrapHijacked(conn), early // the wrapper holds a read buffer
			if err != nil {
				lost()
				clientconn.ResetConn(out.Conn)
				return
			}
			go take()
		}, func() {
			out.Conn = c.ctx.Conn()
			lost()
		})
	})
}

// earlyBytesLimit is far more than is read of a connection ahead of a handshake: fasthttp's buffer,
// and the rest of a TLS record.
const earlyBytesLimit = 64 << 10

var errSentEarly = errors.New("the client sent too much before it had the answer to its handshake")

// earlyBytes is what was read of a connection that was taken from fasthttp, beyond the handshake.
func earlyBytes(taken net.Conn) ([]byte, error) {
	if err := taken.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	var early []byte
	for piece := make([]byte, 512); ; {
		n, _ := taken.Read(piece) // what is here already: with that deadline nothing is read of the socket
		if early = append(early, piece[:n]...); n == 0 {
			return early, taken.SetReadDeadline(time.Time{})
		}
		if len(early) > earlyBytesLimit {
			return nil, errSentEarly
		}
	}
}
