package watch

import (
	"context"
	"errors"

	"spillway/internal/apistatus"
	"spillway/internal/backfill"
	"spillway/internal/cache"
	"spillway/internal/flowcontrol"
	"spillway/internal/plan"
	"spillway/internal/source"
)

// Opening is what became of a request for a watch.
type Opening int

const (
	// Opened: the stream has its place in history and is counted in. It is delivered or dismissed.
	Opened Opening = iota
	// Refused: the request has its answer.
	Refused
	// Unproven: nothing was answered, and upstream has to. The state could not be proven in time, or
	// it is not known why the requested resourceVersion did not arrive (W-216).
	Unproven
)

// beginning is what a stream sends first. It is fixed before the head of the answer is sent, so
// that whatever a client does once it has the head is an event that the stream will send (W-100,
// W-102). The zero value is a stream of events alone.
type beginning struct {
	state *cache.Snapshot // its objects are sent as ADDED
	err   error           // the stream ends behind its head
}

// pinned is how many bytes of old state the stream keeps alive until the client has taken them.
func (b beginning) pinned() int64 {
	if b.state == nil {
		return 0
	}
	return pinnedBytes(b.state)
}

func pinnedBytes(s *cache.Snapshot) int64 { return max(s.Bytes, 1) }

// Open begins a watch: it reserves what the watch takes of the limits, waits for a state that the
// watch may begin with, and fixes the place in history where it begins. Like kube-apiserver, it
// waits until then with the head. A panic gives everything back.
func (m *Manager) Open(c request, p plan.Plan, o StreamOptions, flow flowcontrol.Flow) (st *Stream, opening Opening) {
	opening = Refused
	opened := m.newStream(p, o)
	defer func() {
		if opening != Opened {
			opened.release(EndAborted)
		}
	}()
	if opening = opened.open(c, flow); opening != Opened {
		return nil, opening
	}
	if !m.admit(opened) {
		apistatus.WriteAs(c, opened.failure, apistatus.ShuttingDown())
		return nil, Refused
	}
	return opened, Opened
}

func (s *Stream) open(c request, flow flowcontrol.Flow) Opening {
	if !s.reserve(c, flow) {
		return Refused
	}
	proven, err := s.await(c)
	switch {
	case errors.Is(err, errClientLeft):
		c.HangUp() // the client does not read what is answered now
		apistatus.Write(c, apistatus.NotReady(apistatus.RetryAfter()))
		return Refused
	case errors.Is(err, backfill.ErrBusy):
		apistatus.WriteAs(c, s.failure, statusPastBusy())
		return Refused
	case errors.As(err, new(endError)), errors.As(err, new(*source.TooLargeError)):
		s.first.err = err
		return Opened
	case err != nil:
		return Unproven
	}
	if !s.reserveState(c, flow) {
		return Refused
	}
	s.fix(proven)
	return Opened
}

// errClientLeft says that the client closed its connection or cancelled its HTTP/2 stream.
var errClientLeft = errors.New("the client left")

// await waits for what the watch begins with: a proven state, a resourceVersion, or a turn to read
// events from before the log. However short the watch is to be, the wait has bounds of its own, as
// upstream's has (W-106). The state is nil where any will do. Beside errors of the source, await
// returns errClientLeft, backfill.ErrBusy, a TooLargeError, or an endError.
func (s *Stream) await(c request) (*cache.Snapshot, error) {
	if s.timeout <= 0 {
		return nil, endError(EndTimeout)
	}
	ctx, leave := context.WithCancelCause(s.context())
	defer leave(nil)
	defer c.Departs(func() { leave(errClientLeft) })()
	state, err := s.awaitStart(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return state, err
}

func (s *Stream) awaitStart(ctx context.Context) (*cache.Snapshot, error) {
	switch s.start {
	case plan.StateConsistent:
		ctx, cancel := context.WithTimeout(ctx, source.ArrivalTimeout)
		defer cancel()
		return s.source.Fresh.Prove(ctx)
	case plan.StateAtLeast:
		return s.source.AwaitRV(ctx, s.from, source.VerdictTimeout)
	case plan.EventsFromNewest:
		ctx, cancel := context.WithTimeout(ctx, source.ArrivalTimeout)
		defer cancel()
		var err error
		s.from, err = s.source.Fresh.Newest(ctx)
		return nil, err
	case plan.EventsFrom:
		return nil, s.reachBack(ctx)
	}
	return nil, nil
}

// fix fixes the place in history where the watch begins.
func (s *Stream) fix(proven *cache.Snapshot) {
	switch s.start {
	case plan.EventsFrom, plan.EventsFromNewest:
		s.started = s.from
		if s.past == nil {
			s.cursor, s.first.err = s.hub().Resume(s.from, s.selector(), s.encoding)
		}
	case plan.EventsFromNow:
		state := s.source.Resource().Snapshot()
		s.cursor, s.started = s.hub().From(state.Next, state.RV, s.selector(), s.encoding), state.RV
	default:
		state := s.newestState(proven)
		s.first.state, s.started = state, state.RV
		s.cursor, s.first.err = s.hub().After(state, s.selector(), s.encoding)
	}
}

// newestState is the present state, which spares the log behind an older one, unless only what was
// proven is known to be upstream's.
func (s *Stream) newestState(proven *cache.Snapshot) *cache.Snapshot {
	r := s.source.Resource()
	now := r.Snapshot()
	if proven == nil || r.Current(proven) && now.RV >= proven.RV {
		return now
	}
	return proven
}
