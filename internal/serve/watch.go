package serve

import (
	"context"
	"net"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"spillway/internal/object"
)

// watch takes the connection away from fasthttp and makes it a stream: no handler, no buffers and no request context stay.
func (s *Server) watch(ctx *fasthttp.RequestCtx, server *fasthttp.Server, p Plan) {
	st := &stream{
		server:   s,
		plan:     p,
		enc:      object.Encoding{Chunked: true, Bookmarks: p.Watch.Bookmarks},
		deadline: time.Now().Add(p.Watch.Timeout),
		closing:  ctx.Request.Header.ConnectionClose(),
	}
	st.ctx, st.cancel = context.WithCancelCause(s.base)
	if !s.admit(st) {
		writeStatus(ctx, statusShuttingDown())
		return
	}
	st.head = watchHead(answerAuditID(string(ctx.Request.Header.Peek(auditID))), st.closing)
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		if h, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
			c = h.UnsafeConn() // the wrapper holds a read buffer
		}
		s.mu.Lock()
		st.conn = c
		s.mu.Unlock()
		if s.base.Err() != nil { // closed before it could know of this connection
			reset(c)
		}
		go s.run(st, server)
	})
}

// watchHead is the head of a watch's answer, sent before the first event is known (W-102).
func watchHead(audit string, closing bool) []byte {
	head := make([]byte, 0, 256)
	head = append(head, "HTTP/1.1 200 OK\r\nAudit-Id: "...)
	head = append(head, audit...)
	head = append(head, "\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\nDate: "...)
	head = fasthttp.AppendHTTPDate(head, time.Now())
	head = append(head, "\r\nTransfer-Encoding: chunked\r\n"...)
	if closing {
		head = append(head, "Connection: close\r\n"...)
	}
	return append(head, "\r\n"...)
}

// run delivers a stream to its end, counts and logs the reason, and gives the connection back for the next request if the
// end was a clean one (W-2).
func (s *Server) run(st *stream, server *fasthttp.Server) {
	left := s.gone.watch(st.conn, func() { st.cancel(endError(EndDeparted)) })
	reason := s.delivered(st)
	left()
	reuse := s.ended(st, reason)
	if !reuse {
		if !reason.clean() {
			reset(st.conn)
		}
		_ = st.conn.Close() // there is nobody left to tell
		return
	}
	if err := server.ServeConn(st.conn); err != nil {
		s.log.Debug("connection after a watch", zap.Error(err))
	}
}

// delivered delivers a stream. A panic ends that stream alone.
func (s *Server) delivered(st *stream) (reason EndReason) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			reason = EndAborted
		}
	}()
	return s.deliver.deliver(st)
}

// admit counts a stream in, unless the server is going away.
func (s *Server) admit(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.draining {
		return false
	}
	s.mu.streams[st] = struct{}{}
	s.active.Add(1)
	s.metrics.streams.WithLabelValues(st.resource()).Inc()
	return true
}

// ended counts a stream out, and reports whether its connection can carry another request.
func (s *Server) ended(st *stream, reason EndReason) bool {
	st.cancel(endError(reason))
	s.metrics.streams.WithLabelValues(st.resource()).Dec()
	s.metrics.ends.WithLabelValues(st.resource(), string(reason)).Inc()
	s.metrics.bytes.WithLabelValues(st.resource()).Add(float64(st.bytes))
	st.logEnd(s.log, reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.streams, st)
	s.active.Done()
	return reason.clean() && !st.closing && !s.mu.draining
}

// logEnd says how a stream ended: loudly only if somebody may want to know who could not keep up.
func (st *stream) logEnd(log *zap.Logger, reason EndReason) {
	fields := []zap.Field{
		zap.String("resource", st.resource()), zap.String("reason", string(reason)),
		zap.String("client", st.conn.RemoteAddr().String()), zap.Int64("bytes", st.bytes),
	}
	if reason == EndStalled {
		log.Warn("evicted a client that stopped reading", fields...)
		return
	}
	log.Debug("watch ended", fields...)
}
