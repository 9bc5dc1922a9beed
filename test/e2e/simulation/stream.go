package simulation

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fanout"
	"spillway/internal/object"
)

// source is what a stream needs of a cursor. Planted faults stand between the two.
type source interface {
	Next() ([]byte, error)
	Through() uint64
	InSeam() bool
	Held() int
	Lag() uint64
	BeginInitialEvents()
	EndInitialEvents()
	Close()
}

// reason is why a stream ended.
type reason string

const (
	expired   reason = "expired"   // history does not reach back to the client: 410
	retracted reason = "retracted" // an initial object went away before the state was proven: a clean end
	deadline  reason = "deadline"  // a clean end
	departed  reason = "departed"  // the client's own doing
)

type phase uint8

const (
	phaseState phase = iota // the initial objects
	phaseHeld               // all of them were sent; waiting for the proof that they are the present
	phaseLive
	phaseEnded
)

// stream is the server's side of one watch, as internal/serve has it, but for the connection: bytes
// go to the client when the simulation says so, as many as it says.
type stream struct {
	sim        *Simulation
	client     *client
	source     source
	phase      phase
	out        []byte // of the run that is being sent
	started    uint64
	generation *generation
	polled     uint64 // the log's head when the source last had nothing
	ahead      bool   // the client was ahead of history then
	reasons    []reason

	consistent, proven, bookmarkDue, endDue bool
}

// fromState opens a stream that begins with the state.
func (c *client) fromState(consistent bool) *stream {
	snapshot := c.sim.resource.Snapshot()
	position := c.sim.faults.start(snapshot)
	s := c.newStream(c.sim.hub.For("").From(position, snapshot.RV, c.selector(), c.format.encoding()))
	s.started, s.phase, s.consistent = snapshot.RV, phaseState, consistent
	if consistent {
		s.source.BeginInitialEvents()
	}
	snapshot.Scan(c.selector(), "", func(o *object.Object) bool {
		s.out = made(fanout.AppendEvent(s.out, c.format.encoding(), object.Added, o, o.RV))
		return true
	})
	return s
}

// fromRV opens a stream of what follows rv, or one that says that it cannot.
func (c *client) fromRV(rv uint64) (*stream, error) {
	cursor, err := c.sim.faults.resume(c.sim, rv, c.selector(), c.format.encoding())
	if err != nil {
		s := c.newStream(nil)
		s.end(expired, err)
		return s, err
	}
	s := c.newStream(cursor)
	s.started, s.phase = rv, phaseLive
	return s, nil
}

func (c *client) newStream(src source) *stream {
	s := &stream{sim: c.sim, client: c, generation: c.sim.history.now()}
	s.poll()
	s.source = c.sim.faults.source(s, src)
	return s
}

// pump sends at most n bytes, and reports whether it sent any or ended.
func (s *stream) pump(n int) bool {
	moved := false
	for n > 0 {
		if len(s.out) == 0 {
			if s.phase == phaseEnded {
				s.client.closed(s)
				return true
			}
			if !s.fill() {
				return moved
			}
			continue
		}
		piece := s.out[:min(n, len(s.out))]
		s.out = s.out[len(piece):]
		n -= len(piece)
		moved = true
		s.client.receive(piece)
		if s.client.stream != s || s.sim.violation != nil {
			return moved
		}
	}
	return moved
}

// fill gets more to send, or the end; false if there is nothing.
func (s *stream) fill() bool {
	switch {
	case s.phase == phaseState && s.consistent:
		s.phase = phaseHeld
		return true
	case s.phase == phaseState:
		s.endOfState()
		return true
	case s.phase == phaseLive && s.endDue && !s.source.InSeam():
		s.end(deadline, nil)
		return true
	}
	run, err := s.source.Next()
	if err != nil {
		s.fail(err)
		return true
	}
	if s.out = run; len(run) > 0 {
		return true
	}
	s.poll()
	switch {
	case s.phase == phaseHeld && s.proven && !s.source.InSeam():
		s.source.EndInitialEvents()
		s.endOfState()
		return true
	case s.phase == phaseLive && s.bookmarkDue && !s.source.InSeam():
		s.bookmarkDue = false
		if rv := s.source.Through(); s.client.format.bookmarks && rv > s.started {
			s.out = made(fanout.AppendBookmark(nil, s.client.format.encoding(), s.sim.resource.Template(), rv, false))
			return true
		}
	}
	return false
}

func (s *stream) poll() {
	s.polled = s.sim.resource.Log().Head()
	if session := s.client.session; session != nil {
		session.scan()
		s.ahead = session.future > 0
	}
}

func (s *stream) endOfState() {
	s.phase = phaseLive
	s.started = s.source.Through()
	s.out = made(fanout.AppendBookmark(nil, s.client.format.encoding(), s.sim.resource.Template(), s.started, true))
}

func (s *stream) fail(err error) {
	if errors.Is(err, fanout.ErrInitialObjectDeleted) {
		s.end(retracted, nil)
		return
	}
	s.client.session.refused(s)
	s.end(expired, err)
}

// end makes the last bytes. The client must learn the reason from them.
func (s *stream) end(why reason, cause error) {
	s.reasons = append(s.reasons, why)
	s.phase = phaseEnded
	enc := s.client.format.encoding()
	var last []byte
	if cause != nil {
		last = made(fanout.AppendError(last, enc, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Message: cause.Error(), Reason: metav1.StatusReasonExpired, Code: 410,
		}))
	}
	s.out = s.sim.faults.finish(s, fanout.AppendEnd(last, enc))
	if s.source != nil {
		s.source.Close()
	}
}

// made is a frame: upstream's own bytes can always be framed.
func made(frame []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return frame
}
