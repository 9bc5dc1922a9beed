package watch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"spillway/internal/auth/reauth"
)

// gate is where a watch is kept from sending: shut while upstream cannot be asked whether it still
// may, and cut off when it may not any more. Who passes reads one pointer.
//
// Invariant: what is taken from the cursor while the gate is shut is nothing. What was handed to a
// connection before may still arrive.
type gate struct {
	shut atomic.Pointer[chan struct{}] // closed when it opens; nil: it is open
}

// opens is closed when the gate opens; nil: it is open.
func (g *gate) opens() <-chan struct{} {
	if shut := g.shut.Load(); shut != nil {
		return *shut
	}
	return nil
}

// Hold implements reauth.ReviewedStream.
func (s *Stream) Hold() {
	if s.gate.shut.Load() == nil { // only the Reauthorizer shuts it, one call after the other
		shut := make(chan struct{})
		s.gate.shut.Store(&shut)
	}
}

// Resume implements reauth.ReviewedStream.
func (s *Stream) Resume() {
	if shut := s.gate.shut.Swap(nil); shut != nil {
		close(*shut)
		s.poke()
	}
}

// CutAfter is how long a stream that may not go on may take to end as watches end, before its
// connection is cut: what its client has not taken until then, it does not get.
const CutAfter = time.Second

// End implements reauth.ReviewedStream.
func (s *Stream) End(why reauth.End) {
	s.Stop(EndReason(why))
	s.cutAfter(CutAfter, s.out.cut)
}

// pass waits until the gate is open. It returns an endError if the stream has to end instead. Who
// pins old state has a seat (see sink.pace), and gives it up meanwhile: a wait for upstream's word
// on one client must not keep the others from their answers.
func (s *Stream) pass(pinned int64) error {
	for opens := s.gate.opens(); opens != nil; opens = s.gate.opens() {
		if pinned > 0 {
			s.out.Pace(0)
		}
		if err := s.awaitOpen(opens); err != nil {
			return err
		}
		if pinned > 0 {
			s.out.Pace(pinned) // anew: the client was not asked to take anything
		}
	}
	if reason := s.revoked(); reason != "" {
		return endError(reason)
	}
	return nil
}

// revoked is why the client may not be sent anything any more; empty if it may.
func (s *Stream) revoked() EndReason {
	if reason := s.Reason(); reason.revoked() {
		return reason
	}
	return ""
}

// awaitOpen waits in front of a gate.
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

// revoked reports that the client may not be sent anything any more.
func (r EndReason) revoked() bool {
	switch r {
	case EndCredentialExpired, EndUnauthenticated, EndForbidden, EndReviewTimeout:
		return true
	}
	return false
}
