package http1

import (
	"net"

	"spillway/internal/clientconn"
	"spillway/internal/watch"
	"spillway/internal/websocket"
)

// Watch takes the connection from fasthttp and makes it a stream: no handler, no buffers and
// no request context stay.
func (c Call) Watch(st *watch.Stream, headers watch.HeadersFunc) {
	if h, ok := c.handshake(); ok {
		c.watchWebSocket(st, h)
		return
	}
	s := c.server
	out := &watch.ConnSink{StallTimeout: s.opts.StallTimeout, Closing: c.ctx.Request.Header.ConnectionClose(),
		Head: watch.Head(st, headers, clientconn.StrictTransportSecurity(c.ctx.Conn()))}
	out.Ended = func(reason watch.EndReason, draining bool) { s.watchEnded(out, reason, draining) }
	st.Serve(out, func(take, lost func()) {
		hijack(c.ctx, func(conn net.Conn) {
			early, err := earlyBytes(conn)
			// The reader that has the beginning of a pipelined request is dropped, and what is left of it
			// must not be read as a request.
			out.Closing = out.Closing || err != nil || len(early) > 0
			out.Conn = unwrapHijacked(conn) // the wrapper holds a read buffer
			out.Watched = s.opts.Poller.Watch(out.Conn, func() { st.Stop(watch.EndClientClosed) })
			go take()
		}, func() {
			out.Conn = c.ctx.Conn()
			lost()
		})
	})
}

// watchEnded lets a connection serve its next request after the clean end of a watch (W-2), if
// there may be one.
func (s *ListenerServer) watchEnded(out *watch.ConnSink, reason watch.EndReason, draining bool) {
	out.Watched.Stop()
	switch {
	case !reason.Clean():
		clientconn.ResetConn(out.Conn)
	case out.Closing || draining:
		go out.Conn.Close() //nolint:errcheck // the client has left
	default:
		go s.serveNext(out.Conn)
	}
}

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

// watchWebSocket takes the connection from fasthttp and makes it the WebSocket of a stream.
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
