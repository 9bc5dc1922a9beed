package watch

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth/reauth"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/plan"
	"spillway/internal/source"
)

// StreamOptions are what a stream is made of besides its plan.
type StreamOptions struct {
	// Owner is the user that the hub counts the stream for.
	Owner  fanout.Owner
	Client ClientInfo
	// Admit registers the stream with what reauthorises it; nil: nothing does.
	Admit func(reauth.ReviewedStream) *reauth.Lease
}

// Refusal is what becomes of a request whose watch does not begin.
type Refusal struct {
	// Answer is the answer. Nil: upstream has to give it. The state could not be proven in time, or it
	// is not known why the requested resourceVersion did not arrive (W-216).
	Answer *apistatus.Answer
}

// unprovenRefusal is the refusal that leaves the answer to upstream.
var unprovenRefusal = &Refusal{}

// Open begins a watch: it reserves what the watch takes of the limits, waits for a state that the
// watch may begin with, and fixes the place in history where it begins. Like kube-apiserver, it
// waits until then with the head. A panic gives everything back. A stream that is open is served
// (Stream.Serve) or abandoned (Stream.Abandon).
func (m *Manager) Open(
	onDisconnect flowcontrol.OnDisconnect, p plan.Plan, o StreamOptions, flow flowcontrol.Flow,
) (*Stream, *Refusal) {
	s := m.newStream(p, o)
	opened := false
	defer func() {
		if !opened {
			s.release(EndAborted)
		}
	}()
	if refusal := s.open(onDisconnect, flow); refusal != nil {
		return nil, refusal
	}
	if !m.addStream(s) {
		return nil, s.refuse(apistatus.ShuttingDown())
	}
	opened = true
	return s, nil
}

// maxWatchDuration is longer than anything lasts, and short enough for moments to hold its end: a
// client may ask for up to 292 years.
const maxWatchDuration = 100 * 365 * 24 * time.Hour

func (m *Manager) newStream(p plan.Plan, o StreamOptions) *Stream {
	st := &Stream{
		source: p.Source, start: p.Watch.Start, fromRV: p.Watch.RV, timeout: min(p.Watch.Timeout, maxWatchDuration),
		encoding: p.Encoding, failureFormat: p.Failure,
		wantsBookmarks: p.Watch.Bookmarks, wantsInitialEventsEnd: p.Watch.EndMark,
		owner: o.Owner, client: o.Client, admit: o.Admit,
	}
	st.deadline = now().after(st.timeout)
	st.liveSelector.Store(&p.Selector)
	st.begin(m)
	return st
}

func (s *Stream) open(onDisconnect flowcontrol.OnDisconnect, flow flowcontrol.Flow) *Refusal {
	if refusal := s.reserve(flow); refusal != nil {
		return refusal
	}
	proven, err := s.awaitBeginning(onDisconnect)
	switch {
	case errors.Is(err, errClientLeft):
		refusal := s.refuse(apistatus.NotReady(apistatus.RetryAfter()))
		refusal.Answer.HangUp = true // the client does not read what is answered now
		return refusal
	case errors.Is(err, backfill.ErrBusy):
		return s.refuse(statusBackfillBusy())
	case errors.As(err, new(endError)), errors.As(err, new(*source.TooLargeError)):
		s.beginning.err = err
		return nil
	case err != nil:
		return unprovenRefusal
	}
	if refusal := s.reserveState(onDisconnect, flow); refusal != nil {
		return refusal
	}
	s.fixBeginning(proven)
	return nil
}

// refuse refuses the watch with a Status.
func (s *Stream) refuse(status *metav1.Status) *Refusal {
	return &Refusal{apistatus.FailureAs(s.failureFormat, status)}
}

// errClientLeft says that the client closed its connection or cancelled its HTTP/2 stream.
var errClientLeft = errors.New("the client left")

// awaitBeginning waits for what the watch begins with: a proven state, a resourceVersion, or a turn
// to read events from before the log. However short the watch is to be, the wait has bounds of its
// own, as upstream's has (W-106). The state is nil where any will do. An error is the source's,
// errClientLeft, backfill.ErrBusy, or an endError.
func (s *Stream) awaitBeginning(onDisconnect flowcontrol.OnDisconnect) (*cache.Snapshot, error) {
	if s.timeout <= 0 {
		return nil, endError(EndTimeout)
	}
	ctx, leave := context.WithCancelCause(s.context())
	defer leave(nil)
	defer onDisconnect(func() { leave(errClientLeft) })()
	state, err := s.awaitStart(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return state, err
}

func (s *Stream) awaitStart(ctx context.Context) (*cache.Snapshot, error) {
	switch s.start {
	case plan.StateConsistent:
		return s.source.Fresh.Prove(ctx)
	case plan.StateAtLeast:
		return s.source.AwaitRV(ctx, s.fromRV, source.VerdictTimeout)
	case plan.EventsFromNewest:
		ctx, cancel := context.WithTimeout(ctx, source.ArrivalTimeout)
		defer cancel()
		var err error
		s.fromRV, err = s.source.Fresh.UpstreamRV(ctx)
		return nil, err
	case plan.EventsFrom:
		return nil, s.joinBackfill(ctx)
	}
	return nil, nil
}

// fixBeginning fixes the place in history where the watch begins.
func (s *Stream) fixBeginning(proven *cache.Snapshot) {
	switch s.start {
	case plan.EventsFrom, plan.EventsFromNewest:
		s.startRV = s.fromRV
		if s.backfill == nil {
			s.cursor, s.beginning.err = s.hub().CursorFromRV(s.fromRV, s.selector(), s.encoding)
		}
	case plan.EventsFromNow:
		state := s.source.Resource().Snapshot()
		s.cursor, s.startRV = s.hub().CursorAt(state.Next, state.RV, s.selector(), s.encoding), state.RV
	default:
		state := s.newestState(proven)
		s.beginning.state, s.startRV = state, state.RV
		s.cursor, s.beginning.err = s.hub().CursorAfter(state, s.selector(), s.encoding)
	}
}

// newestState is the present state, which spares the log behind an older one, unless only what was
// proven is known to be upstream's.
func (s *Stream) newestState(proven *cache.Snapshot) *cache.Snapshot {
	r := s.source.Resource()
	now := r.Snapshot()
	if proven == nil || r.IsCurrent(proven) && now.RV >= proven.RV {
		return now
	}
	return proven
}
