package states

import (
	"sync"
	"sync/atomic"
	"time"
)

// Transition is a step from one state to another, or to another cause of the same.
type Transition struct {
	From, To State
	At       time.Time
}

// Machine is a mirror's place among the states, which its methods move. Each of them says what
// happened, and which state follows. Nothing follows one that was given up. Safe for use by many
// goroutines; State costs one atomic load.
type Machine struct {
	report func(Transition)

	mu    sync.Mutex // makes steps one at a time, and reports them in their order
	state atomic.Pointer[State]
}

// NewMachine begins with starting. report is called for each transition with the Machine locked: it
// must return at once, and must not call the Machine. It may be nil.
func NewMachine(report func(Transition)) *Machine {
	m := &Machine{report: report}
	m.state.Store(&State{kind: KindStarting, since: time.Now()})
	return m
}

// State is the present one.
func (m *Machine) State() State { return *m.state.Load() }

// step makes the state that follows the present one. It begins now if it is of another kind.
func (m *Machine) step(follows func(State) State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, at := m.State(), time.Now()
	if from.kind == KindGivenUp {
		return
	}
	to := follows(from)
	to.since = from.since
	if to.kind != from.kind {
		to.since = at
	}
	m.state.Store(&to)
	if m.report != nil && (from.kind != to.kind || from.cause.Why != to.cause.Why) {
		m.report(Transition{From: from, To: to, At: at})
	}
}

// Complete says that a complete state has arrived.
func (m *Machine) Complete() {
	m.step(func(s State) State {
		to := State{kind: KindSynced, holds: true}
		if s.kind == KindFallingBack || s.kind == KindSynced {
			to.cause = s.cause
		}
		return to
	})
}

// Open says that a watch goes on from the state that there is. Without one it is a watch-list, and
// the state is on its way.
func (m *Machine) Open() {
	m.step(func(s State) State {
		if s.holds && (s.kind == KindResuming || s.kind == KindRefused) {
			return State{kind: KindSynced, holds: true}
		}
		return s
	})
}

// Interrupt says that nothing keeps the state current, or that an attempt to get one came to
// nothing.
func (m *Machine) Interrupt(c Cause) {
	m.step(func(s State) State {
		switch {
		case s.kind == KindFallingBack:
			s.next = time.Time{} // why it falls back stays the cause
			return s
		case s.holds:
			return State{kind: KindResuming, cause: c, holds: true}
		}
		return State{kind: KindStarting, cause: c}
	})
}

// Refuse says that an API server that answers does not serve the resource, and when the next
// attempt is; zero: that is not known yet.
func (m *Machine) Refuse(c Cause, until time.Time) {
	m.step(func(s State) State { return State{kind: KindRefused, cause: c, next: until, holds: s.holds} })
}

// Lose is Refuse, for a mirror whose state is not held any more.
func (m *Machine) Lose(c Cause, until time.Time) {
	m.step(func(State) State { return State{kind: KindRefused, cause: c, next: until} })
}

// FallBack says that a watch-list did not end, and that a LIST follows.
func (m *Machine) FallBack(c Cause) {
	m.step(func(s State) State { return State{kind: KindFallingBack, cause: c, holds: s.holds} })
}

// Wait says when the next attempt is.
func (m *Machine) Wait(until time.Time) {
	m.step(func(s State) State {
		if s.kind != KindSynced {
			s.next = until
		}
		return s
	})
}

// GiveUp ends it.
func (m *Machine) GiveUp(c Cause) {
	m.step(func(State) State { return State{kind: KindGivenUp, cause: c} })
}
