package simulation

import (
	"math"

	"spillway/internal/object"
)

// mirror is the reflector: it brings upstream's writes to the cache, in order, when its connection
// lives. What it does, the history notes.
type mirror struct {
	sim       *Simulation
	next      int // the first of upstream's writes that was not delivered
	connected bool
}

func (m *mirror) step() {
	r := m.sim.rand
	if m.lost() {
		m.connected = false
	}
	if !m.connected {
		switch {
		case r.IntN(8) > 0:
		case m.lost() || r.IntN(2) == 0:
			m.relist()
		default:
			m.resume()
		}
		return
	}
	switch n := r.IntN(100); {
	case n < 60:
		m.deliver(1 + r.IntN(4))
	case n < 66:
		m.bookmark()
	case n < 70:
		m.connected = false
	}
}

// lost reports that upstream's history is no longer the one that the mirror followed. (A real
// mirror may be unable to recognise it; then no client is sent a 410.)
func (m *mirror) lost() bool { return m.sim.up.lowest < m.sim.history.now().through }

// deliver brings at most n writes.
func (m *mirror) deliver(n int) {
	for ; n > 0 && m.next < len(m.sim.up.writes); n-- {
		w := m.sim.up.writes[m.next]
		m.next++
		m.apply(w)
		m.sim.history.event(w)
		m.sim.counts.Writes++
	}
}

func (m *mirror) apply(w write) {
	var err error
	switch {
	case w.new == nil:
		err = m.sim.resource.Delete(w.old.object(w.rv))
	case w.old == nil:
		err = m.sim.resource.Add(w.new.object(w.rv))
	default:
		err = m.sim.resource.Update(w.new.object(w.rv))
	}
	if err != nil {
		m.sim.report(Complete, "the cache refuses %v: %v", w, err)
	}
}

// bookmark brings progress: as far as nothing more was written.
func (m *mirror) bookmark() {
	rv := m.sim.up.rv
	if m.next < len(m.sim.up.writes) {
		rv = m.sim.up.writes[m.next].rv - 1
	}
	if err := m.sim.resource.Bookmark(object.NewBookmark(pods), rv); err != nil {
		m.sim.report(Complete, "the cache refuses a bookmark: %v", err)
	}
	if rv > m.sim.history.now().through {
		m.sim.history.event(write{rv: rv})
	}
}

// resume goes on where the connection broke. Upstream may repeat itself.
func (m *mirror) resume() {
	m.connected = true
	for i := max(0, m.next-m.sim.rand.IntN(3)); i < m.next; i++ {
		if w := m.sim.up.writes[i]; w.rv <= m.sim.history.now().through {
			m.apply(w)
		}
	}
}

// relist replaces the state. Objects come in no order.
func (m *mirror) relist() {
	u := m.sim.up
	var list []*object.Object
	for _, v := range u.state {
		list = append(list, v.object(v.rv))
	}
	if err := m.sim.resource.Replace(list, u.rv); err != nil {
		m.sim.report(Complete, "the cache refuses a list: %v", err)
	}
	m.next, m.connected, u.lowest = len(u.writes), true, math.MaxUint64
	m.sim.counts.Relists++
	if len(m.sim.history.generations) == 0 {
		m.sim.history.void(u.state, u.rv)
		return
	}
	voids, seam := m.sim.history.relist(u.state, u.rv)
	if voids {
		m.sim.counts.Voids++
	}
	if seam {
		m.sim.counts.Seams++
	}
	if got, want := m.sim.resource.CompleteRV(), m.sim.history.now().through; got != want {
		m.sim.report(Complete, "after a relist the cache promises %d, not %d", got, want)
	}
}

// rest brings everything that is left, and upstream's last word.
func (m *mirror) rest() {
	if m.lost() {
		m.relist()
	}
	m.connected = true
	m.deliver(len(m.sim.up.writes))
	m.bookmark()
	m.sim.dispatch()
}
