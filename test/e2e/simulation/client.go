package simulation

import "fmt"

// kind is how a client comes to know the state, if it wants to.
type kind uint8

const (
	watchList      kind = iota // the state as ADDED events, up to a bookmark; any age
	consistentList             // the same, not older than what upstream had when the client came
	listWatch                  // a LIST, then a watch from its resourceVersion
	events                     // no state: a watch from some resourceVersion
	fromNow                    // no state: a watch of what follows its head
)

// state reports that the watch itself begins with the state.
func (k kind) state() bool { return k <= consistentList }

// client is a watcher with a mind of its own: it stalls, reads by the byte, vanishes, resumes from
// what it saw last, and starts over on a 410.
type client struct {
	sim     *Simulation
	id      int
	kind    kind
	filter  filter
	format  format
	wire    *wire
	stream  *stream // nil while it is disconnected
	session *session
	last    uint64 // the resourceVersion to resume at; 0: none
	stalled bool
	got     []string // what came on the present connection
}

func newClient(s *Simulation, id int) *client {
	c := &client{sim: s, id: id, kind: kind(s.rand.IntN(5)), filter: randomFilter(s.rand)}
	c.format = format{chunked: s.rand.IntN(3) > 0, bookmarks: c.kind.state() || s.rand.IntN(2) == 0}
	return c
}

func (c *client) String() string {
	return fmt.Sprintf("client %d (%v, %+v, %+v) at %d", c.id, [...]string{"watch-list", "consistent watch-list",
		"list and watch", "events", "events from now"}[c.kind],
		c.filter, c.format, c.last)
}

func (c *client) step() {
	r := c.sim.rand
	if c.stream == nil {
		if r.IntN(4) > 0 {
			c.connect()
		}
		return
	}
	n := r.IntN(200)
	switch {
	case c.stalled && n > 4:
	case n < 5:
		c.stalled = !c.stalled
	case n < 60:
		c.stream.pump(1 + r.IntN(400))
	case n < 150:
		c.stream.pump(1 << 20)
	case n < 162:
		c.cut()
	case n < 166:
		c.stream.endDue = true
	case n < 188:
		c.stream.bookmarkDue = true
	default:
		c.stream.answer()
	}
}

// connect resumes, or starts over.
func (c *client) connect() {
	if c.last > 0 && (c.session.foreign(c.last) || c.session.unsettled()) {
		c.last = 0
	}
	c.wire, c.got = &wire{chunked: c.format.chunked}, nil
	if c.last > 0 {
		c.resume()
		return
	}
	c.sim.counts.Starts++
	c.session = newSession(c)
	switch c.kind {
	case watchList, consistentList, fromNow:
		c.stream = c.fromNow()
	case listWatch:
		c.list()
		c.resume()
	case events:
		c.last = c.sim.history.now().through + uint64(c.sim.rand.IntN(70)) - 60
		c.resume()
	}
}

// list is a LIST.
func (c *client) list() {
	c.last = c.session.list()
}

func (c *client) resume() {
	c.sim.counts.Resumes++
	known := c.session.resume(c.last)
	stream, err := c.fromRV(c.last)
	switch c.stream = stream; {
	case known && err != nil:
		c.sim.report(End, "%v is refused though history reaches back to it: %v", c, err)
	case !known && err == nil:
		c.sim.report(Complete, "%v resumes where history is unknown", c)
	}
}

// receive takes bytes from the connection.
func (c *client) receive(p []byte) {
	messages, err := c.wire.write(p)
	for _, m := range messages {
		c.got = append(c.got, m.String())
		if rv := c.session.message(m); rv > 0 {
			c.last = rv
		}
	}
	if err != nil {
		c.sim.report(End, "%v cannot read its stream: %v", c, err)
	}
}

// closed is the end of the stream, after its last byte.
func (c *client) closed(s *stream) {
	c.stream = nil
	c.session.ended(s, c.wire)
	if why := s.reasons[0]; why == expired || why == unproven {
		c.last = 0
	}
}

// cut is the client vanishing in the middle of whatever.
func (c *client) cut() {
	if c.stream == nil {
		return
	}
	c.sim.counts.Cuts++
	if c.stream.phase != phaseEnded {
		c.stream.reasons = append(c.stream.reasons, departed)
		if c.stream.source != nil {
			c.stream.source.Close()
		}
	}
	c.stream = nil
	if c.session.failed { // it has seen the ERROR
		c.last = 0
	}
}

// drain reads all there is.
func (c *client) drain() {
	for c.sim.violation == nil {
		if c.stream == nil {
			c.connect()
		}
		if s := c.stream; s != nil && !s.pump(1<<20) && c.stream == s {
			return
		}
	}
}

// rest reads all there is, and then knows the truth; a bookmark confirms it, and an end is an end.
func (c *client) rest() {
	c.stalled = false
	if c.stream != nil {
		c.stream.prove()
	}
	for range 3 { // to be proven takes one, a bookmark another
		c.drain()
		if c.stream != nil {
			c.stream.prove()
			c.stream.bookmarkDue = true
		}
	}
	if c.sim.violation != nil {
		return
	}
	c.session.rest()
	last := c.stream
	last.endDue = true
	last.pump(1 << 20)
	if c.stream == last && c.sim.violation == nil {
		c.sim.report(End, "%v is past its deadline", c)
	}
}

func (c *client) close() {
	if c.stream != nil {
		c.cut()
	}
}
