package watch

import "go.uber.org/zap"

// Serve delivers an open stream through out, to its end, which may come long after Serve has
// returned. connect connects out, and then calls one of the functions once: take, which delivers
// the stream, or lost, if there is no connection to be had any more.
func (s *Stream) Serve(out sink, connect func(take, lost func())) {
	s.served = true
	connect(func() {
		s.attach(out)
		s.deliver()
	}, func() {
		s.attach(out)
		s.countOut(EndAborted)
	})
}

// Abandon counts an open stream out that is not served after all. It does nothing to one that is.
func (s *Stream) Abandon() {
	if s.served {
		return
	}
	s.served = true
	s.release(EndAborted)
	s.manager.removeStream(s)
}

// attach gives the stream its sink.
func (s *Stream) attach(out sink) {
	m := s.manager
	m.mu.Lock()
	s.out = out
	m.mu.Unlock()
	if m.serverEnd() != "" { // closed before this sink was known
		out.cut()
	}
}

// deliver delivers the stream. A panic ends that stream alone.
func (s *Stream) deliver() {
	s.cleanup = func(reason EndReason) { s.out.end(reason, s.countOut(reason)) }
	defer func() {
		if p := recover(); p != nil {
			s.manager.opts.Panicked(p)
			s.Cleanup(EndAborted)
		}
	}()
	if admit := s.admit; admit != nil {
		s.reauthLease = admit(s)
		s.admit = nil
	}
	s.manager.deliverer.deliver(s)
}

// countOut counts a stream out, and logs and counts why it ended. It reports whether the server
// drains.
func (s *Stream) countOut(reason EndReason) (draining bool) {
	m := s.manager
	s.release(reason)
	if s.reauthLease != nil {
		s.reauthLease.Release()
	}
	m.opts.Metrics.ends.WithLabelValues(s.resource(), string(reason)).Inc()
	s.logEnd(reason)
	m.endStats.addEnd(s, reason)
	if s.recordEnd != nil {
		s.recordEnd()
	}
	return m.removeStream(s)
}

// release gives back what a stream holds. It is called when the stream has ended, or cannot begin.
func (s *Stream) release(reason EndReason) {
	s.settleReason(reason)
	s.closeCursor()
	s.releaseState()
	s.manager.opts.Limiter.ReleaseSelector(&s.selectorClaim)
	s.watchPermit.Release()
}

// logEnd logs how a stream ended: as a warning if its client was too slow, which is the only end
// that an operator may have to act on.
func (s *Stream) logEnd(reason EndReason) {
	log := s.manager.opts.Log
	fields := []zap.Field{
		zap.String("verb", "watch"), zap.String("resource", s.resource()), zap.String("client", s.out.client()),
		zap.Int64("bytes", s.sentBytes.Load()),
	}
	if LogEviction(log, reason, fields...) {
		return
	}
	fields = append(fields, zap.String("reason", string(reason)))
	if reason.isRevoked() {
		log.Info("ended a watch that may not go on", fields...)
		return
	}
	log.Debug("watch ended", fields...)
}
