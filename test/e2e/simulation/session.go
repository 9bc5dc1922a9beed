package simulation

import (
	"maps"
	"slices"
)

// session is the oracle's knowledge of one client since it last started over: what it must get,
// what it got, and so what it must hold. It spans the client's connections.
type session struct {
	client     *client
	generation *generation
	state      bool   // the client wants to hold the state
	initial    bool   // and has not received its mark yet
	begun      bool   // and has all of the state at its head
	asked      uint64 // what upstream had when the client came, if the state must not be older
	restores   int    // of upstream then
	future     uint64

	scanned   int                 // entries before it are in pending, or were
	pending   []*expected         // what must come, in this order
	delivered map[delivery]bool   // what came
	store     map[string]string   // what the client holds
	want      map[string]*version // what it must hold after the first wanted entries
	wanted    int

	// Of the current connection.
	from         uint64 // the resourceVersion that it was resumed at
	rv, bookmark uint64
	promised     int           // entries that the last bookmark vouches for
	reached      int           // the last entry that came, and one
	parts        map[*gap]bool // seams that the stream is in, or was
	failed       bool
}

// expected is a message that must come.
type expected struct {
	delivery
	entry int
	shown *version
	seam  *gap
}

type delivery struct {
	kind, key string
	rv        uint64
}

func newSession(c *client) *session {
	s := &session{client: c, generation: c.sim.history.now(), scanned: -1, delivered: map[delivery]bool{},
		store: map[string]string{}}
	s.state = c.kind <= listWatch
	s.initial = c.kind.state()
	if c.kind == consistentList {
		s.asked, s.restores = c.sim.up.rv, c.sim.up.restores
	}
	s.connected()
	return s
}

// connected forgets the previous connection.
func (s *session) connected() {
	s.from, s.rv, s.bookmark, s.promised, s.reached, s.failed = 0, 0, 0, 0, 0, false
	s.parts = map[*gap]bool{}
}

func (s *session) report(check Check, format string, args ...any) {
	s.client.sim.report(check, "%v: "+format, append([]any{s.client}, args...)...)
}

// begin is the head of a watch from now. What the mirror had then is the state, and what came after
// that are events.
func (s *session) begin() {
	s.generation = s.client.sim.history.now()
	s.place(s.generation.through)
}

// list is a LIST of the present state; it returns its resourceVersion.
func (s *session) list() uint64 {
	snapshot := s.client.sim.resource.Snapshot()
	snapshot.Scan(s.client.filter.selector(), "", collect(s.store))
	s.place(snapshot.RV)
	s.compare()
	return snapshot.RV
}

// place says that the client has what is complete through rv.
func (s *session) place(rv uint64) {
	i, inside := s.generation.index(rv)
	if inside || rv > s.generation.through {
		s.report(Bookmark, "%d is promised, but the present is %d, and it may be inside a gap: %v", rv, s.generation.through,
			inside)
		return
	}
	s.scanned, s.wanted = i, i
	s.want = maps.Clone(s.generation.stateAt(i))
	maps.DeleteFunc(s.want, func(_ string, v *version) bool { return !s.client.filter.matches(v) })
}

// foreign reports that a resourceVersion is of a generation that is void, but also one of the
// present: the client cannot distinguish the two, so it does not try.
func (s *session) foreign(rv uint64) bool {
	h := s.client.sim.history
	g := h.now()
	return s.generation != g && rv >= g.floor && (rv <= g.through || h.greatest == 0)
}

// resume is a new connection at rv. known says whether history reaches back to it.
func (s *session) resume(rv uint64) (known bool) {
	h := s.client.sim.history
	g, floor := h.now(), s.client.sim.resource.Log().Floor()
	s.connected()
	s.from = rv
	switch {
	case rv < floor, rv > g.through && h.greatest > g.through:
		return false
	case rv > g.through:
		s.future = rv
		return true
	}
	i, inside := g.index(rv)
	if inside {
		return false
	}
	s.scan()
	for _, e := range s.pending {
		if e.entry < i && e.delivery != (delivery{"BOOKMARK", "/", rv}) { // a seam's last change may have said as much
			s.report(Complete, "%v never came, and the client is beyond it", e.delivery)
		}
	}
	s.pending, s.scanned = nil, i
	s.wanted = min(i, s.wanted)
	return true
}

// scan finds what must come, up to the present.
func (s *session) scan() {
	if s.future > 0 {
		if s.generation.through < s.future {
			return
		}
		i, inside := s.generation.index(s.future)
		if inside {
			return
		}
		s.scanned, s.wanted, s.future = i, i, 0
	}
	for ; s.scanned >= 0 && s.scanned < len(s.generation.entries); s.scanned++ {
		e := &s.generation.entries[s.scanned]
		kind, shown, seen := s.client.filter.seen(e)
		switch {
		case seen:
			s.expect(delivery{kind, shown.key(), e.rv}, e, shown)
		case e.part == seamEnd && s.client.format.bookmarks:
			s.expect(delivery{"BOOKMARK", "/", e.rv}, e, nil)
		}
	}
}

func (s *session) expect(d delivery, e *entry, shown *version) {
	s.pending = append(s.pending, &expected{delivery: d, entry: s.scanned, shown: shown, seam: e.seam})
}

// take removes what came from what must come.
func (s *session) take(d delivery) *expected {
	i := slices.IndexFunc(s.pending, func(e *expected) bool { return e.delivery == d })
	if i < 0 {
		return nil
	}
	e := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	s.reached = max(s.reached, e.entry+1)
	if e.seam != nil {
		s.parts[e.seam] = true
	}
	return e
}

// inSeam reports that a client which is complete through rv at most is between two messages of a
// seam.
func (s *session) inSeam(rv uint64) bool {
	return slices.ContainsFunc(s.pending, func(e *expected) bool {
		return e.seam != nil && s.parts[e.seam] && e.entry >= s.reached && rv < e.seam.l
	})
}

// unsettled reports that the connection broke after a bookmark that vouched for something which had
// not come. Whether it was overtaken or lost is not known: such a client starts over, and what is
// wrong will show elsewhere.
func (s *session) unsettled() bool { return len(s.pending) > 0 && s.pending[0].entry < s.promised }
