package simulation

import (
	"spillway/internal/object"
)

// message judges one message, and returns the resourceVersion that the client may resume at from
// now on, 0 for none.
func (s *session) message(m *message) uint64 {
	s.scan()
	switch {
	case s.failed:
		s.report(End, "%v comes after the ERROR", m)
	case m.Type == "ERROR":
		s.failed = true
		if m.code != 410 {
			s.report(End, "an ERROR %d that is not a 410: %s", m.code, m.text)
		}
	case m.Type == "BOOKMARK" && m.end && s.initial:
		return s.endOfState(m)
	case m.Type == "BOOKMARK" && s.initial: // at the end of a seam
		s.stateComplete()
		s.bookmarked(m)
	case m.Type == "BOOKMARK":
		return s.bookmarked(m)
	case s.initial && s.ofState(m):
		s.store[m.key] = string(m.Object)
	case s.initial:
		s.stateComplete()
		s.event(m) // no place to resume at: the client has not all of the state before the mark
	default:
		return s.event(m)
	}
	return 0
}

// ofState reports that a message is an object of the state at the head.
func (s *session) ofState(m *message) bool {
	v := s.want[m.key]
	_, has := s.store[m.key]
	return !s.begun && m.Type == "ADDED" && v != nil && v.rv == m.rv && !has
}

// stateComplete checks, once, that all of the state at the head has come.
func (s *session) stateComplete() {
	if !s.begun {
		s.begun = true
		s.compare()
	}
}

// event is invariants 1 to 4 for one event.
func (s *session) event(m *message) uint64 {
	s.client.sim.counts.Events++
	d := delivery{m.Type, m.key, m.rv}
	e := s.take(d)
	switch {
	case e == nil && (s.delivered[d] || m.rv <= s.from):
		s.report(Once, "%v came before, or before the client did", m)
		return 0
	case e == nil:
		s.report(Complete, "%v never happened, or is not for this client", m)
		return 0
	case m.rv < s.rv:
		s.report(Order, "%v comes after %d", m, s.rv)
	case e.entry < s.promised:
		s.report(Bookmark, "%v comes after a bookmark at %d", m, s.bookmark)
	case string(m.Object) != e.shown.json(m.rv):
		s.report(Complete, "%v shows\n%s\nnot\n%s", m, m.Object, e.shown.json(m.rv))
	}
	s.settle()
	s.rv = m.rv
	s.delivered[d] = true
	if m.Type == "DELETED" {
		delete(s.store, m.key)
	} else {
		s.store[m.key] = string(m.Object)
	}
	return m.rv
}

// settle checks that what the last bookmark vouched for has come: had it only been overtaken, it
// would have been next.
func (s *session) settle() {
	if s.unsettled() {
		s.report(Complete, "%v is missing; a bookmark said that all is there up to %d", s.pending[0].delivery, s.bookmark)
	}
}

// endOfState is the bookmark after the initial events: the state at the head and what followed it
// must be the state at its resourceVersion, and that must not be older than the request.
func (s *session) endOfState(m *message) uint64 {
	s.stateComplete()
	if m.rv < s.asked && s.restores == s.client.sim.up.restores {
		s.report(Bookmark, "the initial events end at %d, below %d where upstream was", m.rv, s.asked)
	}
	s.initial = false
	return s.vouched(m)
}

// bookmarked is a promise that the client has everything up to a resourceVersion.
func (s *session) bookmarked(m *message) uint64 {
	s.client.sim.counts.Bookmarks++
	if m.end {
		s.report(Bookmark, "%v says again that the initial events are complete", m)
	}
	return s.vouched(m)
}

// vouched judges the promise of a bookmark.
func (s *session) vouched(m *message) uint64 {
	s.settle()
	s.take(delivery{"BOOKMARK", "/", m.rv})
	i, inside := s.generation.index(m.rv)
	switch {
	case m.rv < s.rv || m.rv < s.bookmark:
		s.report(Order, "%v comes after %d and a bookmark at %d", m, s.rv, s.bookmark)
	case inside || s.inSeam(m.rv):
		s.report(Seam, "%v inside a seam", m)
	case m.rv > s.generation.through:
		s.report(Bookmark, "%v, but nothing is known beyond %d", m, s.generation.through)
	}
	s.bookmark, s.promised = m.rv, i
	if len(s.pending) == 0 || s.pending[0].entry >= i {
		s.advance(i)
		s.compare()
	}
	return m.rv
}

// advance brings what the client must hold to the first i entries.
func (s *session) advance(i int) {
	for ; s.state && s.wanted < i; s.wanted++ {
		e := &s.generation.entries[s.wanted]
		switch {
		case s.client.filter.matches(e.new):
			s.want[e.new.key()] = e.new
		case e.new != nil:
			delete(s.want, e.new.key())
		case e.old != nil:
			delete(s.want, e.old.key())
		}
	}
}

// compare is invariant 2: the client holds what its selector sees of the truth.
func (s *session) compare() {
	if !s.state {
		return
	}
	for key, v := range s.want {
		if held, ok := s.store[key]; !ok {
			s.report(Complete, "%v is missing after entry %d", v, s.wanted)
		} else if held != v.json(v.rv) {
			s.report(Complete, "instead of %v the client holds %s", v, held)
		}
	}
	for key := range s.store {
		if s.want[key] == nil {
			s.report(Complete, "%s is a ghost: %s", key, s.store[key])
		}
	}
}

// refused judges a stream that receives in its course that it has expired: history must be void, or
// have moved past it.
func (s *session) refused(st *stream) {
	log := s.client.sim.resource.Log()
	g := s.client.sim.history.now()
	lapped := st.source.CompleteRV() < log.Floor() || st.ahead && st.polled < log.First()
	unknown := false
	if s.future > 0 && s.future <= g.through {
		_, unknown = g.index(s.future)
	}
	if st.generation == g && !lapped && !unknown {
		s.report(End, "the stream expires at %d, but history reaches back to %d", st.source.CompleteRV(), log.Floor())
	}
}

// ended is invariant 8, at the end of a stream: one reason, which the client has learned, and
// nothing after it.
func (s *session) ended(st *stream, w *wire) {
	sim := s.client.sim
	s.scan()
	why := reason("none")
	if len(st.reasons) == 1 {
		why = st.reasons[0]
	}
	switch {
	case len(st.reasons) != 1:
		s.report(End, "the stream ended for %d reasons: %q", len(st.reasons), st.reasons)
	case len(w.buf) > 0:
		s.report(End, "the stream ended inside a frame: %q", w.buf)
	case w.chunked && !w.ended:
		s.report(End, "the stream broke off (%s)", why)
	case (why == expired) != s.failed:
		s.report(End, "the stream ended as %s, which the client did not learn", why)
	case why == deadline && s.inSeam(s.rv):
		s.report(Seam, "the stream was ended inside a seam")
	}
	switch why {
	case expired:
		sim.counts.Expired++
	case unproven:
		sim.counts.Unproven++
	case deadline:
		sim.counts.Deadlines++
	}
}

// rest judges a client that has read everything there is.
func (s *session) rest() {
	g := s.client.sim.history.now()
	s.scan()
	switch {
	case s.client.stream.generation != g:
		s.report(End, "the stream goes on, although history was void")
		return
	case s.initial:
		s.report(Complete, "the initial events never end")
	case s.future > g.through:
		return
	case s.future > 0:
		s.report(End, "the stream goes on from %d, which is inside a gap", s.future)
	case len(s.pending) > 0:
		s.report(Complete, "%v never came", s.pending[0].delivery)
	case s.client.stream.source.CompleteRV() != g.through:
		s.report(Bookmark, "the client has everything up to %d, and is promised %d", g.through,
			s.client.stream.source.CompleteRV())
	}
	if s.state {
		s.advance(len(g.entries))
		s.compare()
	}
}

// collect is a scan into a store.
func collect(store map[string]string) func(*object.Object) bool {
	return func(o *object.Object) bool {
		store[o.Key] = string(o.JSON())
		return true
	}
}
