package watch

import (
	"sync/atomic"
	"time"

	"spillway/internal/auth/reauth"
)

// pauseState tells whether a stream is paused: from the moment when upstream does not answer
// whether the watch is still allowed, until it does. To ask costs one load of a pointer.
//
// Invariant: nothing is read from the cursor during a pause. What was written to the connection
// before it may still arrive.
type pauseState struct {
	resume atomic.Pointer[chan struct{}] // closed by Resume; nil: no pause
}

// resumed is closed when the stream resumes; nil: it is not paused.
func (p *pauseState) resumed() <-chan struct{} {
	if resume := p.resume.Load(); resume != nil {
		return *resume
	}
	return nil
}

func (p *pauseState) isPaused() bool { return p.resume.Load() != nil }

// Pause implements reauth.ReviewedStream.
func (s *Stream) Pause() {
	if !s.pause.isPaused() { // only the Reauthorizer pauses it, one call after the other
		resume := make(chan struct{})
		s.pause.resume.Store(&resume)
	}
}

// Resume implements reauth.ReviewedStream.
func (s *Stream) Resume() {
	if resume := s.pause.resume.Swap(nil); resume != nil {
		close(*resume)
		s.poke()
	}
}

// CleanEndTimeout is how long a stream that is no longer allowed may take to end cleanly. Then its
// connection is cut, and the client does not get what it has not taken.
const CleanEndTimeout = time.Second

// End implements reauth.ReviewedStream.
func (s *Stream) End(why reauth.End) {
	s.Stop(EndReason(why))
	s.cutAfter(CleanEndTimeout, s.out.cut)
}

// awaitPermission waits as long as the stream is paused. It returns an endError if the stream has
// to end instead. A stream that pins old state gives up its seat meanwhile (see sink.Pace): a
// review of one client must not delay the answers to others.
func (s *Stream) awaitPermission(pinned int64) error {
	for resumed := s.pause.resumed(); resumed != nil; resumed = s.pause.resumed() {
		if pinned > 0 {
			s.out.Pace(0)
		}
		if err := s.awaitResume(resumed); err != nil {
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

// awaitResume waits until resumed is closed, or the stream has to end.
func (s *Stream) awaitResume(resumed <-chan struct{}) error {
	ctx, cancel := s.untilDeadline()
	defer cancel()
	select {
	case <-resumed:
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
