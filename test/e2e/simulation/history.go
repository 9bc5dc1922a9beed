package simulation

import (
	"cmp"
	"maps"
	"slices"
	"sort"
)

// history is what the mirror received, as the oracle keeps it: all of it, never trimmed. A seam is
// worked out here from the truth, by the letter of design D5.
type history struct {
	generations []*generation
	greatest    uint64 // ever promised; 0 once the present is beyond it
}

// generation is history between two moments at which it became void.
type generation struct {
	number  int
	floor   uint64
	initial map[string]*version
	state   map[string]*version
	through uint64
	entries []entry
}

// entry is an event or, without versions, progress.
type entry struct {
	rv       uint64
	old, new *version
	seam     *gap // that it is part of
	part     part
}

// gap is what a seam closes: resourceVersions p and l are known, what is between them is not.
type gap struct{ p, l uint64 }

type part uint8

const (
	ordinary part = iota
	seamDeletion
	seamChange
	seamEnd
)

func (h *history) now() *generation { return h.generations[len(h.generations)-1] }

// void starts a generation.
func (h *history) void(state map[string]*version, rv uint64) {
	if len(h.generations) > 0 {
		h.greatest = max(h.greatest, h.now().through)
	}
	h.generations = append(h.generations, &generation{
		number: len(h.generations), floor: rv, through: rv, initial: maps.Clone(state), state: maps.Clone(state),
	})
	h.pass()
}

// pass forgets what earlier generations promised once the present is beyond it.
func (h *history) pass() {
	if h.now().through >= h.greatest {
		h.greatest = 0
	}
}

// event notes a write, or progress.
func (h *history) event(w write) {
	g := h.now()
	g.append(entry{rv: w.rv, old: w.old, new: w.new})
	g.through = w.rv
	h.pass()
}

func (g *generation) append(e entry) {
	switch {
	case e.new != nil:
		g.state[e.new.key()] = e.new
	case e.old != nil:
		delete(g.state, e.old.key())
	}
	g.entries = append(g.entries, e)
}

// relist notes a complete state at l: a seam, or the end of the generation. It reports which.
func (h *history) relist(state map[string]*version, l uint64) (voids, seam bool) {
	g := h.now()
	p := g.through
	var deletions, changes, last []entry
	for _, key := range slices.Sorted(maps.Keys(g.state)) {
		old := g.state[key]
		if v := state[key]; v == nil || v.uid != old.uid {
			deletions = append(deletions, entry{rv: p, old: old, part: seamDeletion})
		}
	}
	carriesL := false
	for key, v := range state {
		old := g.state[key]
		if old != nil && old.uid == v.uid && old.rv == v.rv {
			continue
		}
		if old != nil && old.uid != v.uid {
			old = nil
		}
		changes = append(changes, entry{rv: v.rv, old: old, new: v, part: seamChange})
		carriesL = carriesL || v.rv == l
		voids = voids || v.rv <= p
	}
	if voids || l < p || l == p && len(deletions) > 0 {
		h.void(state, l)
		return true, false
	}
	deletions = slices.DeleteFunc(deletions, func(e entry) bool {
		if e.old.rv != p || carriesL || state[e.old.key()] != nil {
			return false
		}
		last = append(last, entry{rv: l, old: e.old, part: seamChange})
		return true
	})
	slices.SortFunc(changes, func(a, b entry) int { return cmp.Compare(a.rv, b.rv) })
	all := slices.Concat(deletions, changes, last)
	if len(all) > 0 || l > p { // something may have come and gone where no difference shows
		seam = true
		between := &gap{p, l}
		for _, e := range append(all, entry{rv: l, part: seamEnd}) {
			e.seam = between
			g.append(e)
		}
	}
	g.through = l
	h.pass()
	return false, seam
}

// has reports whether a client that is complete through rv has the entry. No client has part of a
// seam: one that is at p gets it all, again if need be.
func (e *entry) has(rv uint64) bool {
	if e.seam != nil {
		return rv >= e.seam.l
	}
	return rv >= e.rv
}

// index is the first entry that a client does not have which is complete through rv. inside says
// that rv lies strictly inside a gap: no index is right then.
func (g *generation) index(rv uint64) (i int, inside bool) {
	i = sort.Search(len(g.entries), func(i int) bool { return !g.entries[i].has(rv) })
	return i, i < len(g.entries) && g.entries[i].seam != nil && rv > g.entries[i].seam.p
}

// stateAt is the state after the first i entries.
func (g *generation) stateAt(i int) map[string]*version {
	past := generation{state: maps.Clone(g.initial)}
	for _, e := range g.entries[:i] {
		past.append(e)
	}
	return past.state
}
