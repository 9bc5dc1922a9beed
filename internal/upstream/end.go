package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"
)

// minWatchListDuration is how long a watch-list without an event must last to count as one
// (client-go's).
const minWatchListDuration = time.Second

// errEmpty says that what was to be a watch-list ended at once, without an event.
var errEmpty = errors.New("the watch-list ended at once")

// ending is how a watch ended.
type ending struct {
	duration   time.Duration
	isExpected bool // its time was over, or the loop ended it, or upstream said why
}

// end closes a watch that ended with err. It returns nil if another watch may continue where it
// ended, and otherwise why the Sink needs another state.
func (l *loop) end(ctx context.Context, st *stream, err error) error {
	st.close()
	l.r.recordClose(st)
	invalid := l.checkState(ctx, st, err)
	l.lastEnd = &ending{time.Since(st.openedAt), invalid != nil || st.isInTime() || st.isRenewed.Load()}
	if invalid != nil {
		return invalid
	}
	return l.checkBody(ctx, st, err)
}

// checkState returns why nothing can continue the Sink's state: it was requested again, upstream
// sent an ERROR event or something that cannot be understood, or the Sink failed.
func (l *loop) checkState(ctx context.Context, st *stream, err error) error {
	var message *messageError
	var sink errSink
	if failure := st.failure.Load(); failure != nil {
		if errors.As(*failure, new(errNoEndMark)) {
			l.fallBack(*failure)
		}
		return *failure
	}
	switch {
	case errors.As(err, &message):
		l.r.recordFailure(ctx, "watch", message.error)
		return message.error
	case errors.As(err, &sink):
		return sink
	}
	return nil
}

// checkBody judges the end of a body. Whether it was cut off or not, another watch resumes after
// the last whole event, unless watch-lists do not reach their end.
func (l *loop) checkBody(ctx context.Context, st *stream, err error) error {
	isUnended := !st.isOrdered && !st.isRenewed.Load()
	if isUnended && err == io.EOF {
		if l.unendedCount++; l.unendedCount >= unendedLimit {
			l.fallBack(errNoEnd)
			return errNoEnd
		}
	}
	switch {
	case errors.Is(err, context.Canceled): // the loop ended it
	case err != io.EOF:
		l.r.recordFailure(ctx, "watch", err) // it resumes, but until then nothing is current
	case !st.isInTime():
		l.r.observer.OnEarlyEnd()
	}
	l.r.log.Debug("watch ended", zap.Error(err))
	if isUnended && st.isEmpty && l.lastEnd.duration < minWatchListDuration {
		return errEmpty
	}
	return nil
}

// fallBack has LISTs take the place of watch-lists, because one did not end.
func (l *loop) fallBack(err error) {
	l.listUntil = time.Now().Add(listFallbackPeriod)
	l.r.log.Debug("falling back to LIST and WATCH", zap.Error(err))
	l.r.observer.OnFallback(err)
}
