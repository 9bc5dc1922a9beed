package mirror

import (
	"time"

	"spillway/internal/mirror/states"
	"spillway/internal/upstream"
)

// observer moves the mirror's state as its reflector fares.
func (m *mirror) observer(s *Set) upstream.Observer {
	interrupt := func(why states.Why, text string) {
		m.moveState(func() { m.state.Interrupt(states.Cause{Why: why, Text: text}) })
	}
	return upstream.Observer{
		OnState:  func() { m.moveState(m.state.Complete) },
		OnOpen:   func() { m.moveState(m.state.Open) },
		OnWait:   func(until time.Time) { m.moveState(func() { m.state.Wait(until) }) },
		OnRelist: func(reason string) { interrupt(states.WhyRelist, reason) },
		OnFallback: func(err error) {
			m.moveState(func() { m.state.FallBack(states.Cause{Why: states.WhyNoInitialEventsEnd, Text: err.Error()}) })
		},
		OnEarlyEnd: func() {
			interrupt(states.WhyWatchEnded, "the watch was ended before its time, without an error")
			// The bytes of built-in objects change only with the API server's version, which epochs follow.
			if !m.resource.Info.Builtin {
				m.representation.suspectAtPace()
			}
		},
		OnFailure: func(err error) {
			if m.denials.IsFinal(err, m.reflector.Status()) {
				s.active.Go(func() { s.lose(m, err) })
				return
			}
			m.noteFailure(s, err)
		},
	}
}

// moveState moves the state, unless another mirror has it by now.
func (m *mirror) moveState(move func()) {
	if !m.ended.Load() {
		move()
	}
}

// noteFailure moves the state after a failure that may pass. An error that the API server has
// answered for longer than staleThreshold is a refusal if the API server says that it serves: its
// answers to clients are then as good as those to the mirror.
func (m *mirror) noteFailure(s *Set, err error) {
	cause := causeOf(err)
	if cause.Why != states.WhyRefused || time.Since(m.reflector.Status().FailingSince) < staleThreshold {
		m.moveState(func() { m.state.Interrupt(cause) })
		return
	}
	if m.checkingServer.CompareAndSwap(false, true) {
		s.active.Go(func() {
			defer m.checkingServer.Store(false)
			m.refuseOrInterrupt(cause, s.client.Serves(s.ctx))
		})
	}
}

// refuseOrInterrupt moves the state after an error, by whether the API server serves others. The
// mirror may have succeeded meanwhile, and would not say so again.
func (m *mirror) refuseOrInterrupt(cause states.Cause, serves bool) {
	if m.isWell() {
		return
	}
	m.moveState(func() {
		if serves {
			m.state.Refuse(cause, m.state.State().Next())
		} else {
			m.state.Interrupt(states.Cause{Why: states.WhyUnreachable, Text: cause.Text})
		}
	})
	if m.isWell() {
		m.moveState(m.state.Open)
	}
}

// isWell reports that the last that upstream sent was of use.
func (m *mirror) isWell() bool {
	since, _ := m.reflector.FailingSince()
	return since.IsZero()
}
