package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Lifecycle is how a stream ends, which takes two reasons:
//
//   - Reason is why it has to end. The first Stop settles it, or the end of the server. The
//     deliverer learns it by Reason, or by Done while it waits, and sends what is still to be sent.
//   - The reason of Cleanup is why it did end. It is counted and logged, and decides whether the
//     connection stays. It is another one if the end itself failed, such as with a client that took
//     none of it. If nothing has settled Reason, Cleanup does.
//
// A wait on behalf of the stream ends with its context, which exists until the stream is a slot. A
// slot never waits, because its writer calls Reason: so an idle watch has no context.
type Lifecycle struct {
	manager     *Manager                    // static; its base is the server's
	reason      atomic.Pointer[EndReason]   // nil: it is not settled
	waitContext atomic.Pointer[waitContext] // nil: nothing waits
	cleanup     func(EndReason)             // static once the stream is delivered

	end struct {
		sync.Mutex
		isOver   bool        // Cleanup was called, and the connection may serve another request
		cutTimer *time.Timer // cuts the connection of a stream that does not end in time
	}
}

// waitContext is the context of what waits on behalf of a stream. Unless it is released, its cause
// is an endError once it ends.
type waitContext struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// begin makes the context. It ends with the manager's base at the latest.
func (l *Lifecycle) begin(m *Manager) {
	l.manager = m
	w := &waitContext{}
	w.ctx, w.cancel = context.WithCancelCause(m.opts.Base)
	l.waitContext.Store(w)
}

// releaseContext is called when nothing waits on behalf of the stream any more.
func (l *Lifecycle) releaseContext() {
	if w := l.waitContext.Swap(nil); w != nil {
		w.cancel(nil)
	}
}

// context is the parent of every wait on behalf of the stream.
func (l *Lifecycle) context() context.Context {
	if w := l.waitContext.Load(); w != nil {
		return w.ctx
	}
	return l.manager.opts.Base
}

// settleReason settles why the stream ends, unless that is settled. A client that leaves because
// the server stops has not left by itself. Any goroutine may call it.
func (l *Lifecycle) settleReason(reason EndReason) {
	if end := l.manager.serverEnd(); end != "" {
		reason = end
	}
	l.reason.CompareAndSwap(nil, &reason)
	if w := l.waitContext.Load(); w != nil { // if it is released meanwhile, its writer calls Reason next
		w.cancel(endError(*l.reason.Load()))
	}
}

// Reason is why the stream has to end; empty: it goes on.
func (l *Lifecycle) Reason() EndReason {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return l.manager.serverEnd()
}

// serverEnd is why the server ends, which ends every stream; empty: it goes on.
func (m *Manager) serverEnd() EndReason {
	if m.opts.Base.Err() == nil {
		return ""
	}
	return endCause(m.opts.Base)
}

// Done is closed when the stream has to end. It is of the context of its waits: once that is
// released, only the end of the server closes it.
func (l *Lifecycle) Done() <-chan struct{} { return l.context().Done() }

// Cleanup is called by the deliverer once it sends no more, with the reason for which the stream
// did end. Only the first call counts.
func (l *Lifecycle) Cleanup(reason EndReason) {
	l.settleReason(reason)
	if l.tryEnd() {
		l.cleanup(reason)
	}
}

// tryEnd reports whether the stream ends by this call. From then on its connection is not cut.
func (l *Lifecycle) tryEnd() bool {
	l.end.Lock()
	defer l.end.Unlock()
	first := !l.end.isOver
	l.end.isOver = true
	if l.end.cutTimer != nil {
		l.end.cutTimer.Stop()
	}
	return first
}

// cutAfter cuts the connection unless the stream ends within a period.
func (l *Lifecycle) cutAfter(period time.Duration, cut func()) {
	l.end.Lock()
	defer l.end.Unlock()
	if l.end.isOver || l.end.cutTimer != nil {
		return
	}
	l.end.cutTimer = time.AfterFunc(period, func() {
		l.end.Lock()
		defer l.end.Unlock()
		if !l.end.isOver {
			cut()
		}
	})
}

// Stop ends the stream for a reason, unless it has one, as soon as its deliverer can. Any goroutine
// may call it.
func (s *Stream) Stop(reason EndReason) {
	s.settleReason(reason)
	s.poke()
}

// untilDeadline is the context of a wait that also ends at the stream's deadline.
func (s *Stream) untilDeadline() (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(s.context(), s.deadline.time(), endError(EndTimeout))
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

// AsError is the cause of a context whose end ends streams for this reason.
func (r EndReason) AsError() error { return endError(r) }

func (e endError) Error() string { return string(e) }
