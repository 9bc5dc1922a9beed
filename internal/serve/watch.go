package serve

import (
	"time"

	"go.uber.org/zap"

	"spillway/internal/fairness"
)

// longestWatch is longer than anything lasts, and short enough for moments to hold its end: a client may ask for up to 292 years.
const longestWatch = 100 * 365 * 24 * time.Hour

// newStream makes the stream of a watch, which has yet to be admitted and to get its sink.
func (s *Server) newStream(p Plan, g *grant) *stream {
	p.Watch.Timeout = min(p.Watch.Timeout, longestWatch)
	st := &stream{
		server:   s,
		plan:     p,
		grant:    g,
		deadline: now().after(p.Watch.Timeout),
	}
	st.end.wait(s.base)
	st.told.Store(&notice{})
	return st
}

// letIn lets a watch begin within the limits, or answers it. Once it is let in, ended or letGo give back what it holds.
func (s *Server) letIn(c call, st *stream, flow fairness.Flow) bool {
	let := false
	defer func() {
		if !let {
			st.letGo(EndAborted)
		}
	}()
	var refusal *fairness.Refusal
	if st.lasting, refusal = s.opts.Limiter.last(flow); refusal == nil {
		if costly := s.opts.Limiter.choose(flow, st); costly != nil {
			s.refuseSelector(c, st, costly)
			return false
		}
		if width := st.stateWidth(); width > 0 {
			st.starting, refusal = s.opts.Limiter.list(c.departs, flow, width)
		}
	}
	if refusal != nil {
		writeLimited(c, st.plan.Failure, s.opts.Limiter.closed(), refusal.RetryAfter)
		return false
	}
	let = true
	return true
}

// letGo gives back what a stream holds that serves nobody, or nobody any more.
func (st *stream) letGo(reason EndReason) {
	st.conclude(reason)
	if st.past != nil {
		st.past.Close()
	}
	st.starting.Release()
	st.server.opts.Limiter.unchoose(st)
	st.lasting.Release()
}

// admit counts a stream in, unless the server is going away: then the stream is let go of.
func (s *Server) admit(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.draining {
		st.letGo(EndDrain)
		return false
	}
	s.mu.admitted++
	st.id = s.mu.admitted
	s.mu.streams[st] = struct{}{}
	s.active.Add(1)
	s.metrics.streams.WithLabelValues(st.resource(), encodingName(st.plan.Encoding)).Inc()
	return true
}

// attach gives an admitted stream its sink.
func (s *Server) attach(st *stream, out sink) {
	s.mu.Lock()
	st.out = out
	s.mu.Unlock()
	if s.base.Err() != nil { // closed before it could know of this sink
		out.cut()
	}
}

// delivered delivers a stream. A panic ends that stream alone.
func (s *Server) delivered(st *stream) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			st.over(EndAborted)
		}
	}()
	if g := st.grant; g != nil {
		st.permit = g.by.Admit(g.result, g.what, g.decision, st)
		st.grant = nil
	}
	s.deliver.deliver(st)
}

// ended counts a stream out, and logs and counts why it ended. It reports whether the server is going away.
func (s *Server) ended(st *stream, reason EndReason) (draining bool) {
	st.letGo(reason)
	st.gate.close()
	if st.permit != nil {
		st.permit.Release()
	}
	if st.cursor != nil {
		st.cursor.Close()
	}
	s.metrics.streams.WithLabelValues(st.resource(), encodingName(st.plan.Encoding)).Dec()
	s.metrics.ends.WithLabelValues(st.resource(), string(reason)).Inc()
	st.logEnd(s.log, reason)
	s.endings.note(st, reason)
	st.record.over()
	return s.leave(st)
}

// dismiss counts out a stream that was admitted and is not served after all: that nobody has taken.
func (s *Server) dismiss(st *stream) {
	if st.taken {
		return
	}
	st.taken = true
	st.letGo(EndAborted)
	s.metrics.streams.WithLabelValues(st.resource(), encodingName(st.plan.Encoding)).Dec()
	s.leave(st)
}

// leave reports whether the server is going away.
func (s *Server) leave(st *stream) (draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sent[st.resource()] += st.bytes.Load()
	delete(s.mu.streams, st)
	s.active.Done()
	return s.mu.draining
}

// logEnd says how a stream ended: loudly only if somebody may want to know who could not keep up.
func (st *stream) logEnd(log *zap.Logger, reason EndReason) {
	fields := []zap.Field{
		zap.String("verb", "watch"), zap.String("resource", st.resource()), zap.String("client", st.out.client()),
		zap.Int64("bytes", st.bytes.Load()),
	}
	if logCut(log, reason, fields...) {
		return
	}
	fields = append(fields, zap.String("reason", string(reason)))
	if reason.revoked() {
		log.Info("ended a watch that may not go on", fields...)
		return
	}
	log.Debug("watch ended", fields...)
}
