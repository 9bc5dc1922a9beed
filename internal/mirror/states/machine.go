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
// happened; which state follows is the business of the present one. Safe for use by many
// goroutines; State costs one atomic load.
type Machine struct {
	now  func() time.Time
	told func(Transition)

	mu    sync.Mutex // makes steps one at a time, and tells of them in their order
	state atomic.Pointer[State]
}

// NewMachine begins with starting. told is called for each transition with the Machine locked: it
// must return at once, and must not call the Machine. It may be nil.
func NewMachine(now func() time.Time, told func(Transition)) *Machine {
	m := &Machine{now: now, told: told}
	var first State = starting{baseState: baseState{now()}}
	m.state.Store(&first)
	return m
}

// State is the present one.
func (m *Machine) State() State { return *m.state.Load() }

func (m *Machine) step(next func(s State, at time.Time) State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, at := m.State(), m.now()
	to := next(from, at)
	m.state.Store(&to)
	if m.told != nil && (from.Kind() != to.Kind() || from.Cause().Why != to.Cause().Why) {
		m.told(Transition{From: from, To: to, At: at})
	}
}

// Complete says that a complete state has arrived.
func (m *Machine) Complete() { m.step(State.completed) }

// Open says that a watch goes on from the state that there is.
func (m *Machine) Open() { m.step(State.opened) }

// Interrupt says that nothing keeps the state current, or that an attempt to get one came to
// nothing.
func (m *Machine) Interrupt(c Cause) {
	m.step(func(s State, at time.Time) State { return s.interrupted(at, degradation{cause: c}) })
}

// Refuse says that an apiserver that answers does not serve the resource, and when the next attempt
// is; zero: that is not known yet.
func (m *Machine) Refuse(c Cause, until time.Time) {
	m.step(func(s State, at time.Time) State { return s.refused(at, degradation{c, until}) })
}

// FallBack says that a watch-list did not end, and that a LIST follows.
func (m *Machine) FallBack(c Cause) {
	m.step(func(s State, at time.Time) State { return s.fellBack(at, degradation{cause: c}) })
}

// Wait says when the next attempt is.
func (m *Machine) Wait(until time.Time) {
	m.step(func(s State, _ time.Time) State { return s.waits(until) })
}

// Lose is Refuse, for a mirror whose state is not held any more.
func (m *Machine) Lose(c Cause, until time.Time) {
	m.step(func(s State, at time.Time) State { return s.lost(at, degradation{c, until}) })
}

// GiveUp ends it.
func (m *Machine) GiveUp(c Cause) {
	m.step(func(s State, at time.Time) State { return s.gaveUp(at, c) })
}
