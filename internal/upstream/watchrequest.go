package upstream

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"spillway/internal/upstream/wire"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchGrace is how much longer than its timeoutSeconds a watch may last before we end it
// ourselves: upstream ends it in time (W-112) unless it is no longer there.
const watchGrace = 30 * time.Second

// errRelist ends a watch so that the complete state is read.
var errRelist = apierrors.NewResourceExpired("relist requested")

// open opens a watch, or a watch-list. It tries until upstream says that this is in vain: an
// upstream that cannot be reached, or is not ready yet, can bear the LISTs of all mirrors least.
func (l *loop) open(ctx context.Context, o metav1.ListOptions) (*stream, error) {
	r, initial := l.r, o.SendInitialEvents != nil
	refused := time.Time{} // since when upstream has answered with nothing but refusals
	for {
		if relist := r.mustRelist.Swap(false); relist && !initial {
			return nil, errRelist
		}
		st, err := r.watch(ctx, o)
		if err == nil {
			return st, nil
		}
		v := verdictOn(err, initial)
		if v == answered && initial {
			r.log.Debug("upstream refuses a watch-list, trying a LIST") // which tells whether this is a failure
			return nil, err
		}
		r.recordFailure(ctx, "watch", err)
		switch {
		case v == unreachable:
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		}
		doubted := v == busy && !apierrors.IsTooManyRequests(err) && time.Since(refused) > refusalTimeout
		if v == answered || doubted || ctx.Err() != nil {
			return nil, err
		}
		l.pauseAfterFailure(ctx, v, err)
	}
}

// pauseAfterEnd waits after a watch that ended before its time, and longer if it had not lasted:
// all the others have ended, too.
func (l *loop) pauseAfterEnd(ctx context.Context) {
	end := l.lastEnd
	l.lastEnd = nil
	switch {
	case end == nil:
	case end.duration < stableWatchDuration && !end.isExpected:
		l.sleep(ctx, min(l.pauses.Step(), spread(maxBusyPause)))
	default:
		l.pauses = l.r.pauses
		if !end.isExpected {
			l.sleep(ctx, spread(l.pauses.Duration))
		}
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
	var back bool
	l.r.wait(func() { back = l.r.client.recoveryProbe.wait(ctx, d) })
	if back {
		l.pauses = l.r.pauses
	}
}

// verdict is what a failed attempt says of the next one.
type verdict int

const (
	unreachable verdict = iota // there was no answer that makes sense: the same may work as soon as upstream is there
	busy                       // upstream cannot now, or, since it has only begun, does not know yet whether it may
	answered                   // another attempt would have the same answer
)

// verdictOn judges a failure of a watch, or of a watch-list: a LIST may take the place of that.
func verdictOn(err error, initial bool) verdict {
	var status apierrors.APIStatus
	switch {
	// what stands between may wait for the first event
	case errors.Is(err, wire.ErrUncacheable), initial && errors.As(err, new(errNoHead)):
		return answered
	case !errors.As(err, &status):
		return unreachable
	case apierrors.IsTooManyRequests(err):
		return busy
	case initial, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return answered
	case status.Status().Code >= http.StatusInternalServerError, apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return busy
	}
	return answered
}

// watch sends one request for a watch, or for a watch-list.
func (r *Reflector) watch(ctx context.Context, o metav1.ListOptions) (*stream, error) {
	initial := o.SendInitialEvents != nil
	if initial {
		o = r.atLeast(o)
	}
	lasts := time.Duration(*o.TimeoutSeconds) * time.Second
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	req := r.request(ctx, "watch", o)
	if initial {
		record := req.OnHead
		req.OnHead = func(head http.Header) {
			record(head)
			r.client.abilities.ObserveWatchList(head)
		}
		req.HeadTimeout = watchListHeadTimeout
	}
	var on watchConn
	r.loop.Rest()
	body, err := r.client.Get(on.trace(ctx), req)
	r.loop.Work()
	if err != nil {
		cancel()
		if initial && apierrors.IsInvalid(err) {
			r.client.abilities.ObserveRefusal()
		}
		return nil, err
	}
	st := newStream(cancel, r, body)
	st.carrier, st.endsAt, st.isOrdered = on, time.Now().Add(lasts), !initial
	st.lastRV, _ = wire.ParseRV(o.ResourceVersion) // 0 if any will do
	if initial {
		st.endMark = newEndMark(r.endMarkWait, func() bool { return r.client.answersInTime(ctx) }, st.fail)
	}
	r.recordOpen(st)
	return st, nil
}

// list reads a LIST, or one page of it.
func (r *Reflector) list(ctx context.Context, o metav1.ListOptions) (wire.Listing, error) {
	r.loop.Rest() // until the list has arrived
	defer r.loop.Work()
	body, err := r.client.Get(ctx, r.request(ctx, "list", r.atLeast(o)))
	if err != nil {
		return wire.Listing{}, err
	}
	defer body.Close()
	return wire.ReadList(r.resource, body)
}

func (r *Reflector) request(ctx context.Context, verb string, o metav1.ListOptions) GetRequest {
	req := GetRequestFor(verb, r.resource, o)
	req.OnHead = func(head http.Header) { r.recordWarning(ctx, head) }
	return req
}

// atLeast raises the version that a complete state must not be older than to what has been
// promised. Versions that mean something else ("any", "most recent", a page's) stay.
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
