package simulation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/fanout"
	"spillway/internal/object"
)

// source is what a stream needs of a cursor. Planted faults stand between the two.
type source interface {
	Next() ([]byte, error)
	CompleteRV() uint64
	IsInSeam() bool
	BufferedBytes() int
	Lag() uint64
	Close()
}

// reason is why a stream ended.
type reason string

const (
	expired  reason = "expired"  // history does not reach back to the client: 410
	unproven reason = "unproven" // upstream did not say how far it is, and has to answer itself
	deadline reason = "deadline" // a clean end
	departed reason = "departed" // the client's own doing
)

type phase uint8

const (
	phaseAsked phase = iota // nothing was sent: the mirror may not have all that upstream has
	phaseHead               // the head, behind which only a planted fault fixes the place in history
	phaseState              // the initial objects
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

	question            *question // nil: the state may be of any age
	bookmarkDue, endDue bool
}

// question is how far upstream is: what it says before the stream may call its state the present.
// The answer comes late, after those to later questions, or never.
type question struct {
	asked    uint64 // how far upstream was when it was sent
	never    bool
	answered bool
	rv       uint64 // the answer
}

// answer lets the answer come, which is as old as the question or as new as itself; or lets the
// stream find that there is none.
func (s *stream) answer() {
	q := s.question
	if q == nil || q.answered {
		return
	}
	q.answered, q.rv = true, q.asked
	if s.sim.rand.IntN(2) == 0 {
		q.rv = s.sim.up.rv
	}
	q.rv = s.sim.faults.proof(q.rv)
}

// prove lets an answer come in any case, and as of now.
func (s *stream) prove() {
	if s.question != nil {
		*s.question = question{answered: true, rv: s.sim.up.rv}
	}
}

// fromNow opens a stream that begins where history is when its head is sent. A consistent one sends
// its head when the mirror is known to have all that upstream had.
func (c *client) fromNow() *stream {
	s := c.newStream(nil)
	s.phase = phaseAsked
	if c.kind == consistentList {
		s.question = &question{asked: c.sim.up.rv, never: c.sim.rand.IntN(8) == 0}
	} else {
		s.head()
	}
	return s
}

// head sends the head. The place in history is fixed before that, but for a planted fault.
func (s *stream) head() {
	s.phase, s.generation = phaseHead, s.sim.history.now()
	s.client.session.begin()
	if !s.sim.faults.late {
		s.fix()
	}
}

// fix places a stream at the present: a client that is to have the state gets it.
func (s *stream) fix() {
	c, snapshot := s.client, s.sim.resource.Snapshot()
	position := c.sim.faults.start(snapshot)
	cursor := c.sim.hub.ViewFor("").CursorAt(position, snapshot.RV, c.selector(), c.format.encoding())
	s.source = c.sim.faults.source(s, cursor)
	s.started, s.phase = snapshot.RV, phaseLive
	if !c.kind.state() {
		return
	}
	s.phase = phaseState
	snapshot.Scan(c.selector(), "", func(o *object.Object) bool {
		s.out = made(fanout.AppendEvent(s.out, c.format.encoding(), object.Added, o, o.RV))
		return true
	})
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
	case s.phase == phaseAsked:
		return s.proven()
	case s.phase == phaseHead:
		s.fix()
		return true
	case s.phase == phaseState:
		s.endOfState()
		return true
	case s.phase == phaseLive && s.endDue && !s.source.IsInSeam():
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
	case s.phase == phaseLive && s.bookmarkDue && !s.source.IsInSeam():
		s.bookmarkDue = false
		if rv := s.source.CompleteRV(); s.client.format.bookmarks && rv > s.started {
			s.out = made(fanout.AppendBookmark(nil, s.client.format.encoding(), s.sim.resource.BookmarkTemplate(), rv, false))
			return true
		}
	}
	return false
}

// proven sends the head once the answer is there and the mirror has got as far. A stream without an
// answer is not for the proxy: the client has to begin again.
func (s *stream) proven() bool {
	switch q := s.question; {
	case !q.answered:
		return false
	case q.never:
		s.end(unproven, nil)
	case s.sim.resource.CompleteRV() < q.rv:
		return false
	default:
		s.head()
	}
	return true
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
	s.started = s.source.CompleteRV()
	s.out = made(fanout.AppendBookmark(nil, s.client.format.encoding(), s.sim.resource.BookmarkTemplate(), s.started,
		true))
}

func (s *stream) fail(err error) {
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
