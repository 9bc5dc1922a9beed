package upstream

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/upstream/wire"
)

// watchGrace is how much longer than its timeoutSeconds a watch may last before it is ended here:
// upstream ends it in time (W-112) unless it is gone.
const watchGrace = 30 * time.Second

// errRelist ends a watch so that the complete state is read.
var errRelist = apierrors.NewResourceExpired("relist requested")

// open opens a watch, or a watch-list. It tries until upstream answers that it cannot go on: an
// upstream that cannot be reached, or is not ready yet, can bear the LISTs of all mirrors least.
func (l *loop) open(ctx context.Context, o metav1.ListOptions) (*stream, error) {
	r, isWatchList := l.r, o.SendInitialEvents != nil
	var refusedSince time.Time // since when upstream has answered with nothing but refusals; zero: it has not
	for {
		if mustRelist := r.mustRelist.Swap(false); mustRelist && !isWatchList {
			return nil, errRelist
		}
		st, err := r.watch(ctx, o)
		if err == nil {
			return st, nil
		}
		v := verdictOn(err, isWatchList)
		if v == final && isWatchList {
			r.log.Debug("upstream refuses a watch-list, trying a LIST") // which tells whether this is a failure
			return nil, err
		}
		r.recordFailure(ctx, "watch", err)
		switch {
		case v == unreachable:
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		}
		isLasting := v == busy && !apierrors.IsTooManyRequests(err) && time.Since(refusedSince) > refusalTimeout
		if v == final || isLasting || ctx.Err() != nil {
			return nil, err
		}
		l.pauseAfterFailure(ctx, v, err)
	}
}

// pauseAfterEnd waits after a watch that ended before its time, and longer if it had not lasted:
// the watches of all other mirrors have ended, too.
func (l *loop) pauseAfterEnd(ctx context.Context) {
	end := l.lastEnd
	l.lastEnd = nil
	switch {
	case end == nil:
	case end.isExpected:
		l.pauses = l.r.pauses
	case end.duration < stableWatchDuration:
		l.sleep(ctx, min(l.pauses.Step(), spread(maxBusyPause)))
	default:
		l.pauses = l.r.pauses
		l.sleep(ctx, spread(l.pauses.Duration))
	}
}

// pauseAfterFailure waits before the next attempt.
func (l *loop) pauseAfterFailure(ctx context.Context, v verdict, err error) {
	d := l.pauses.Step()
	seconds, _ := apierrors.SuggestsClientDelay(err)
	switch {
	case apierrors.IsTooManyRequests(err):
		d = max(d, min(spread(time.Duration(seconds)*time.Second), maxPause))
	case v == busy:
		d = min(d, spread(maxBusyPause))
	}
	l.r.observer.OnWait(time.Now().Add(d))
	if v == busy {
		l.sleep(ctx, d)
		return
	}
	l.r.wait(func() {
		if l.r.client.recoveryProbe.wait(ctx, d) {
			l.pauses = l.r.pauses
		}
	})
}

// verdict is what a failed attempt says of the next one.
type verdict int

const (
	unreachable verdict = iota // there was no answer that makes sense: the next may have one at any time
	busy                       // upstream cannot serve it now, or has just started and does not know its rules yet
	final                      // the next would have the same answer
)

// verdictOn judges the failure of a watch. One of a watch-list is final sooner, because a LIST may
// take its place.
func verdictOn(err error, isWatchList bool) verdict {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, wire.ErrUncacheable):
		return final
	case isWatchList && errors.As(err, new(errNoHead)): // a proxy in between may hold the head back until an event
		return final
	case !errors.As(err, &status):
		return unreachable
	case apierrors.IsTooManyRequests(err):
		return busy
	case isWatchList, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return final
	case status.Status().Code >= http.StatusInternalServerError, apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return busy
	}
	return final
}

// watch sends one request for a watch, or for a watch-list.
func (r *Reflector) watch(ctx context.Context, o metav1.ListOptions) (*stream, error) {
	isWatchList := o.SendInitialEvents != nil
	if isWatchList {
		o = r.atLeast(o)
	}
	duration := time.Duration(*o.TimeoutSeconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, duration+watchGrace)
	req := r.request(ctx, "watch", o)
	if isWatchList {
		recordWarning := req.OnHead
		req.OnHead = func(head http.Header) {
			recordWarning(head)
			r.client.capabilities.ObserveWatchList(head)
		}
		req.HeadTimeout = watchListHeadTimeout
	}
	var conn watchConn
	r.loop.Rest()
	body, err := r.client.Get(conn.trace(ctx), req)
	r.loop.Work()
	if err != nil {
		cancel()
		if isWatchList && apierrors.IsInvalid(err) {
			r.client.capabilities.ObserveRefusal()
		}
		return nil, err
	}
	st := newStream(cancel, r, body)
	st.conn, st.endsAt, st.isOrdered = conn, time.Now().Add(duration), !isWatchList
	st.lastRV, _ = wire.ParseRV(o.ResourceVersion) // 0 if any will do
	if isWatchList {
		st.endMark = newEndMark(r.endMarkWait, func() bool { return r.client.answersInTime(ctx) }, st.fail)
	}
	r.recordOpen(st)
	return st, nil
}

func (r *Reflector) request(ctx context.Context, verb string, o metav1.ListOptions) GetRequest {
	req := GetRequestFor(verb, r.resource, o)
	req.OnHead = func(head http.Header) { r.recordWarning(ctx, head) }
	return req
}

// atLeast raises the version that a complete state must not be older than to the promised one.
// Versions that mean something else ("any", "most recent", a page's) stay.
func (r *Reflector) atLeast(o metav1.ListOptions) metav1.ListOptions {
	if r.readPromised == nil || o.Continue != "" {
		return o
	}
	promised := r.readPromised()
	if rv, err := wire.ParseRV(o.ResourceVersion); err == nil && rv > 0 {
		o.ResourceVersion = strconv.FormatUint(max(rv, promised), 10)
	}
	return o
}
