package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

var _ cache.ListerWatcherWithContext = source{}

// watchGrace is how much longer than its timeoutSeconds a watch may last before we end it
// ourselves: upstream ends it in time (W-112) unless it is no longer there.
const watchGrace = 30 * time.Second

// errRelist ends a watch so that client-go's loop asks for the complete state.
var errRelist = apierrors.NewResourceExpired("relist requested")

// source is where client-go's loop reads from: upstream's LIST and WATCH of the resource.
type source struct{ r *Reflector }

// List and Watch are what cache.ListerWatcher demands; the loop calls the other two.
func (s source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch is WatchWithContext without a context.
func (s source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext reads one page.
func (s source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	r := s.r
	if !r.begin() {
		return nil, context.Canceled
	}
	defer r.requests.Done()
	if o.Continue == "" {
		r.relist.Store(false)
	}
	list, err := s.list(ctx, o)
	if err != nil {
		r.failed(ctx, "list", err)
		r.observer.Waiting(time.Now().Add(3 * r.pace.longest / 2)) // the loop's own pause, at most
		return nil, err
	}
	r.reached(nil)
	return list, nil
}

func (s source) list(ctx context.Context, o metav1.ListOptions) (*metainternalversion.List, error) {
	query, err := queryOf(s.atLeast(o))
	if err != nil {
		return nil, err
	}
	body, err := s.r.client.get(ctx, s.request(ctx, "list", query))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return decodeList(s.r.resource, body)
}

// shortWatch is more than what the loop takes for no watch at all, and lists after: a second.
const shortWatch = 1500 * time.Millisecond

// WatchWithContext opens a watch, or a watch-list. It tries for as long as upstream does not say
// that this is in vain, since the loop's answer to an upstream that cannot be reached, or is not
// ready yet, is to ask for the complete state: a mirror of every resource would, at the moment when
// upstream can bear it least.
func (s source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	r := s.r
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	s.recover(ctx)
	if initial && s.listsInstead() {
		return nil, errListInstead
	}
	refused := time.Time{} // since when upstream has answered with nothing but refusals
	for {
		if relist := r.relist.Swap(false); relist && !initial {
			return nil, errRelist
		}
		st, err := s.open(ctx, o)
		if err == nil {
			s.started(st)
			return st, nil
		}
		v := verdictOn(err, initial)
		if v == answered && initial {
			r.log.Debug("upstream refuses a watch-list, trying a LIST") // which tells whether this is a failure
			return nil, err
		}
		r.failed(ctx, "watch", err)
		switch {
		case v == unreachable:
			refused = time.Time{}
		case refused.IsZero():
			refused = time.Now()
		}
		if v == answered || v == busy && time.Since(refused) > doubtful || ctx.Err() != nil {
			return nil, err
		}
		s.pause(ctx, v, err)
	}
}

// errListInstead has client-go's loop list, without a trial of a watch-list.
var errListInstead = apierrors.NewInternalError(errors.New("a LIST takes the place of a watch-list"))

// listsInstead reports that a LIST takes the place of a watch-list, since one did not end lately.
func (s source) listsInstead() bool {
	if s.r.fellBack.Swap(false) {
		s.r.lists = time.Now().Add(listsFor)
	}
	return time.Now().Before(s.r.lists)
}

// recover waits after a watch that ended before its time, and longer if it had not lasted: all the
// others have ended, too.
func (s source) recover(ctx context.Context) {
	r := s.r
	end := r.lastEnding()
	switch {
	case end == nil:
	case end.lasted < lasted && !end.expired:
		sleep(ctx, min(r.pace.fail(), spread(busyPause)))
	default:
		r.pace.well()
		if !end.expired {
			sleep(ctx, spread(r.pace.first/2))
		}
	}
}

// pause waits before the next attempt.
func (s source) pause(ctx context.Context, v verdict, err error) {
	d := s.r.pace.fail()
	seconds, _ := apierrors.SuggestsClientDelay(err)
	switch {
	case apierrors.IsTooManyRequests(err):
		d = max(d, min(spread(time.Duration(seconds)*time.Second), longestPause))
	case v == busy:
		d = min(d, spread(busyPause))
	}
	s.r.observer.Waiting(time.Now().Add(d))
	switch {
	case v == busy:
		sleep(ctx, d)
	case s.r.client.recoveryProbe.wait(ctx, d):
		s.r.pace.well()
	}
}

// started lets a watch run that is open.
func (s source) started(st *stream) {
	r := s.r
	r.opened(st)
	if st.ordered {
		r.observer.Opened()
	}
	if r.relist.Load() {
		st.fail(errRelist) // asked for while nothing could be interrupted
	}
	r.requests.Go(st.run) // the loop is running: it called us
}

// verdict is what a failed attempt says of the next one.
type verdict int

const (
	unreachable verdict = iota // there was no answer that makes sense: the same may work as soon as upstream is there
	busy                       // upstream cannot now, or, since it has only begun, does not know yet whether it may
	answered                   // the loop knows what to do about the answer
)

// verdictOn judges a failure of a watch, or of a watch-list: of that the loop has a LIST to fall
// back to.
func verdictOn(err error, initial bool) verdict {
	var status apierrors.APIStatus
	switch {
	// what stands between may wait for the first event
	case errors.Is(err, ErrUncacheable), initial && errors.As(err, new(errNoHead)):
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

func (s source) open(ctx context.Context, o metav1.ListOptions) (*stream, error) {
	o.Watch = true
	if o.SendInitialEvents != nil {
		o = s.atLeast(o)
	}
	query, err := queryOf(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := watchContext(ctx, o.TimeoutSeconds)
	asked, initial := s.request(ctx, "watch", query), o.SendInitialEvents != nil
	if initial {
		record := asked.accepted
		asked.accepted = func(head http.Header) {
			record(head)
			s.r.client.abilities.saw(s.r.client.servedWatchList(head))
		}
		asked.patience = watchListHead
	}
	var on carrier
	body, err := s.r.client.get(on.trace(ctx), asked)
	if err != nil {
		cancel()
		if initial && apierrors.IsInvalid(err) {
			s.r.client.abilities.saw(Abilities{WatchList: AbilityAbsent})
		}
		return nil, err
	}
	st := newStream(cancel, s.r, body)
	st.carrier = on
	st.least, st.ordered = shortWatch, !initial
	st.last, _ = parseRV(o.ResourceVersion) // 0 if any will do
	if !st.ordered {
		st.endMark = newEndMark(s.r.endMarkFor, st.fail)
	}
	if o.TimeoutSeconds != nil {
		st.until = time.Now().Add(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return st, nil
}

func (s source) request(ctx context.Context, verb string, query url.Values) request {
	info := s.r.resource
	accepted := func(head http.Header) { s.r.recordWarning(ctx, head) }
	return request{verb: verb, resource: info.GVR.GroupResource(), path: info.Path(), query: query, accepted: accepted}
}

// atLeast raises the version that a complete state must not be older than to what has been
// promised. Versions that mean something else ("any", "most recent", a page's) stay.
func (s source) atLeast(o metav1.ListOptions) metav1.ListOptions {
	if s.r.promised == nil || o.Continue != "" {
		return o
	}
	promised := s.r.promised()
	if rv, err := parseRV(o.ResourceVersion); err == nil && rv > 0 {
		o.ResourceVersion = strconv.FormatUint(max(rv, promised), 10)
	}
	return o
}

func watchContext(ctx context.Context, timeoutSeconds *int64) (context.Context, context.CancelFunc) {
	if timeoutSeconds == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(*timeoutSeconds)*time.Second+watchGrace)
}

// asStatus is err as an ERROR event carries it, so that client-go's loop understands it.
func asStatus(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	return &status
}

// queryOf spells list options as a query.
func queryOf(o metav1.ListOptions) (url.Values, error) {
	return scheme.ParameterCodec.EncodeParameters(&o, schema.GroupVersion{Version: "v1"})
}
