package mirror

import (
	"time"

	"spillway/internal/mirror/states"
	"spillway/internal/upstream"
)

// observer moves the mirror's state as its reflector fares.
func (m *mirror) observer(s *Set) upstream.Observer {
	return upstream.Observer{
		OnState: func() { m.step(func() { m.state.Complete() }) },
		OnOpen:  func() { m.step(func() { m.state.Open() }) },
		OnWait:  func(until time.Time) { m.step(func() { m.state.Wait(until) }) },
		OnRelist: func(reason string) {
			m.step(func() { m.state.Interrupt(states.Cause{Why: states.WhyRelist, Text: reason}) })
		},
		OnFallback: func(err error) {
			m.step(func() { m.state.FallBack(states.Cause{Why: states.WhyNoInitialEventsEnd, Text: err.Error()}) })
		},
		OnEarlyEnd: func() {
			m.step(func() {
				m.state.Interrupt(states.Cause{
					Why: states.WhyWatchEnded, Text: "the watch was ended before its time, without an error",
				})
			})
			// Built-in ones begin anew with their apiserver alone, which has another version if it
			// shows them otherwise.
			if !m.resource.Info.Builtin {
				m.representation.suspectAtPace()
			}
		},
		OnFailure: func(err error) {
			if m.denials.IsFinal(err, m.reflector.Status()) {
				s.active.Go(func() { s.lose(m, err) })
				return
			}
			m.failed(s, err)
		},
	}
}

// step moves the state, unless another mirror has it by now.
func (m *mirror) step(move func()) {
	if !m.ended.Load() {
		move()
	}
}

// failed moves the state after a failure that may pass. What the apiserver answers with an error is
// refused if it has been for more than a moment, and the apiserver says that it serves: then it is
// not away, and its answers to others are as good as those to the mirror.
func (m *mirror) failed(s *Set, err error) {
	cause := causeOf(err)
	if cause.Why != states.WhyRefused || time.Since(m.reflector.Status().AwaySince) < awayThreshold {
		m.step(func() { m.state.Interrupt(cause) })
		return
	}
	if m.judging.CompareAndSwap(false, true) {
		s.active.Go(func() {
			defer m.judging.Store(false)
			m.judged(cause, s.client.Serves(s.ctx))
		})
	}
}

// judged moves the state after an error of which it is known by now whether the apiserver serves
// others. The mirror may have succeeded meanwhile, and would not say so again.
func (m *mirror) judged(cause states.Cause, serves bool) {
	if m.well() {
		return
	}
	m.step(func() {
		if serves {
			m.state.Refuse(cause, m.state.State().Next())
		} else {
			m.state.Interrupt(states.Cause{Why: states.WhyUnreachable, Text: cause.Text})
		}
	})
	if m.well() {
		m.step(m.state.Open)
	}
}

// well reports that the last that upstream sent was of use.
func (m *mirror) well() bool {
	since, _ := m.reflector.AwaySince()
	return since.IsZero()
}
