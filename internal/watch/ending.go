package watch

import (
	"context"
	"errors"
	"sync/atomic"
)

// ending is that a stream is to end, and why: the first reason that anybody gives, or else that its
// server is told to stop.
//
// What waits on the stream's behalf waits in its context, which is there until the stream is a
// slot. A slot does not wait: it has the reason looked at, and an idle watch has no context.
type ending struct {
	reason atomic.Pointer[EndReason] // nil: nobody gave one
	waits  atomic.Pointer[waits]     // nil: nothing waits
}

// waits is the context of what waits on a stream's behalf.
type waits struct {
	ctx    context.Context // while it is not let go of, its cause is an endError
	cancel context.CancelCauseFunc
}

// wait makes the context, which ends with base at the latest.
func (e *ending) wait(base context.Context) {
	w := &waits{}
	w.ctx, w.cancel = context.WithCancelCause(base)
	e.waits.Store(w)
}

// rest lets go of the context.
func (e *ending) rest() {
	if w := e.waits.Swap(nil); w != nil {
		w.cancel(nil)
	}
}

// give gives a reason. Any goroutine may call it.
func (e *ending) give(reason EndReason) {
	e.reason.CompareAndSwap(nil, &reason)
	if w := e.waits.Load(); w != nil { // if it was let go of meanwhile, whoever did so looks at the reason next
		w.cancel(endError(*e.reason.Load()))
	}
}

// context is what waits on the stream's behalf wait in: it ends when the stream is to end.
func (s *Stream) context() context.Context {
	if w := s.end.waits.Load(); w != nil {
		return w.ctx
	}
	return s.manager.base
}

// untilDeadline is the context of a wait that is over at the stream's deadline, too.
func (s *Stream) untilDeadline() (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(s.context(), s.deadline.time(), endError(EndTimeout))
}

// ending is why the stream is to end; empty: it is not.
func (s *Stream) ending() EndReason {
	if reason := s.end.reason.Load(); reason != nil {
		return *reason
	}
	if s.manager.base.Err() != nil {
		return endCause(s.manager.base)
	}
	return ""
}

// Interrupt ends the stream for a reason, as soon as that can be. The first reason counts. Any
// goroutine may call it.
func (s *Stream) Interrupt(reason EndReason) {
	s.conclude(reason)
	s.poke()
}

// conclude settles why the stream ends, unless that is settled: who leaves because the server was
// told to stop has not left by himself.
func (s *Stream) conclude(reason EndReason) {
	if s.manager.base.Err() != nil {
		reason = endCause(s.manager.base)
	}
	s.end.give(reason)
}

// endCause is why a context ended.
func endCause(ctx context.Context) EndReason {
	var e endError
	if errors.As(context.Cause(ctx), &e) {
		return EndReason(e)
	}
	return EndAborted
}

// endError carries a reason as the cause of a context's end.
type endError EndReason

// AsError is what a context ends with that ends streams for this reason.
func (r EndReason) AsError() error { return endError(r) }

func (e endError) Error() string { return string(e) }
