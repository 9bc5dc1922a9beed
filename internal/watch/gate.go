package watch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"spillway/internal/auth/reauth"
)

// permissionHold pauses a watch: it is shut while upstream does not answer whether the watch is
// still allowed. An open gate costs the deliverer one load of a pointer.
//
// Invariant: nothing is read from the cursor while the gate is shut. What was written to the
// connection before may still arrive.
type permissionHold struct {
	shut atomic.Pointer[chan struct{}] // closed when it opens; nil: it is open
}

// whenOpen is closed when the gate opens; nil: it is open.
func (g *permissionHold) whenOpen() <-chan struct{} {
	if shut := g.shut.Load(); shut != nil {
		return *shut
	}
	return nil
}

// Pause implements reauth.ReviewedStream.
func (s *Stream) Pause() {
	if s.hold.shut.Load() == nil { // only the Reauthorizer shuts it, one call after the other
		shut := make(chan struct{})
		s.hold.shut.Store(&shut)
	}
}

// Resume implements reauth.ReviewedStream.
func (s *Stream) Resume() {
	if shut := s.hold.shut.Swap(nil); shut != nil {
		close(*shut)
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

// awaitPermission waits until the gate is open. It returns an endError if the stream has to end
// instead. A stream that pins old state gives up its seat meanwhile (see sink.Pace): a wait for a
// review of one client must not delay the answers to others.
func (s *Stream) awaitPermission(pinned int64) error {
	for opens := s.hold.whenOpen(); opens != nil; opens = s.hold.whenOpen() {
		if pinned > 0 {
			s.out.Pace(0)
		}
		if err := s.awaitOpen(opens); err != nil {
			return err
		}
		if pinned > 0 {
			s.out.Pace(pinned) // anew: nothing was sent meanwhile
		}
	}
	if reason := s.revokedReason(); reason != "" {
		return endError(reason)
	}
	return nil
}

// revokedReason is the reason if the client is not allowed to receive anything any more.
func (s *Stream) revokedReason() EndReason {
	if reason := s.Reason(); reason.isRevoked() {
		return reason
	}
	return ""
}

// awaitOpen waits until a gate opens.
func (s *Stream) awaitOpen(opens <-chan struct{}) error {
	ctx, cancel := s.untilDeadline()
	defer cancel()
	select {
	case <-opens:
		return nil
	case <-ctx.Done():
		var end endError
		if cause := context.Cause(ctx); errors.As(cause, &end) {
			return end
		}
		return endError(EndAborted)
	}
}
