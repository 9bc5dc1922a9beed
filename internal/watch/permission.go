package watch

import (
	"sync/atomic"
	"time"

	"spillway/internal/auth/reauth"
)

// pauseState tells whether a stream is paused: from the moment when the API server does not answer
// whether the watch is still allowed, until it does. To look costs one load of a pointer.
//
// Invariant: nothing is read from the cursor during a pause. What was written to the connection
// before it may still arrive.
type pauseState struct {
	ended atomic.Pointer[chan struct{}] // closed at the end of the pause; nil: there is none
}

// done is closed at the end of the pause; nil: there is none.
func (p *pauseState) done() <-chan struct{} {
	if ended := p.ended.Load(); ended != nil {
		return *ended
	}
	return nil
}

func (p *pauseState) isPaused() bool { return p.ended.Load() != nil }

// Pause implements reauth.ReviewedStream.
func (s *Stream) Pause() {
	if !s.pause.isPaused() { // only the Reauthorizer pauses it, one call after the other
		ended := make(chan struct{})
		s.pause.ended.Store(&ended)
	}
}

// Resume implements reauth.ReviewedStream.
func (s *Stream) Resume() {
	if ended := s.pause.ended.Swap(nil); ended != nil {
		close(*ended)
		s.poke()
	}
}

// CleanEndTimeout is how long a stream that is no longer allowed may take to end cleanly. Then its
// connection is cut, and the client does not get what it has not taken. It is exported for a test
// of package serve.
const CleanEndTimeout = time.Second

// End implements reauth.ReviewedStream. Every reauth.End is an EndReason (endTable).
func (s *Stream) End(why reauth.End) {
	s.Stop(EndReason(why))
	s.cutAfter(CleanEndTimeout, s.out.cut)
}

// awaitPermission waits as long as the stream is paused. It returns an endError if the stream has
// to end instead; its sink then may have no pace, because nothing but the end is sent. A stream
// that pins old state releases its CPU permit meanwhile (see sink.Pace): a review of one client
// must not delay the answers to others.
func (s *Stream) awaitPermission(pinned int64) error {
	for done := s.pause.done(); done != nil; done = s.pause.done() {
		if pinned > 0 {
			s.out.Pace(0)
		}
		if err := s.awaitResume(done); err != nil {
			return err
		}
		if pinned > 0 {
			s.out.Pace(pinned) // from now on, because nothing was sent during the pause
		}
	}
	if reason := s.revokedReason(); reason != "" {
		return endError(reason)
	}
	return nil
}

// awaitResume waits until done is closed, or the stream has to end.
func (s *Stream) awaitResume(done <-chan struct{}) error {
	ctx, cancel := s.untilDeadline()
	defer cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return endError(endCause(ctx))
	}
}

// revokedReason is the reason if the client is not allowed to receive anything any more.
func (s *Stream) revokedReason() EndReason {
	if reason := s.Reason(); reason.isRevoked() {
		return reason
	}
	return ""
}
