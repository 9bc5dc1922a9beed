package chaos

import (
	"fmt"
	"maps"
	"slices"
)

// oracle judges what clients received by what happened.
type oracle struct {
	truth   []*timeline
	excuses *allowances
	tally   *tally
}

// tally counts what clients saw, so that an empty run cannot pass for a green one.
type tally struct {
	Events, Bookmarks, Lists, Consistent, Streams, Expired, Seams, Breaks, Refusals, Denied int
}

func (t *tally) add(o tally) {
	t.Events += o.Events
	t.Bookmarks += o.Bookmarks
	t.Lists += o.Lists
	t.Consistent += o.Consistent
	t.Streams += o.Streams
	t.Expired += o.Expired
	t.Seams += o.Seams
	t.Breaks += o.Breaks
	t.Refusals += o.Refusals
	t.Denied += o.Denied
}

// verdict is what the oracle finds of one client.
type verdict struct {
	*oracle
	journal *receivedEvents
	held    map[string]version
	fresh   map[string]version // what the initial events of a stream have shown; nil after them
	from    uint64             // where the stream began
	last    uint64             // the version of the last event or bookmark
	// possible are the timelines on which all that the client holds is true. A client goes from one to
	// the next, as upstream does, never back.
	possible []int
	open     bool
}

// judge returns what is wrong with what a client received; nil if nothing is. What the client holds
// in the end is compared with what is there.
func (o *oracle) judge(j *receivedEvents) error {
	v := &verdict{oracle: o, journal: j}
	notes := j.all()
	for i, n := range notes {
		if wrong := v.take(n); wrong != "" {
			return fmt.Errorf("%s: %s\n%s", j.name, wrong, recent(notes[:i+1]))
		}
	}
	return nil
}

// recent are the last notes, which is where to look.
func recent(notes []note) string {
	s := ""
	for _, n := range notes[max(0, len(notes)-25):] {
		s += "\t" + n.String() + "\n"
	}
	return s
}

// take judges one note.
func (v *verdict) take(n note) string {
	switch n.kind {
	case "opened":
		v.tally.Streams++
		v.open = true
		v.from, v.last = n.version.rv, n.version.rv
		v.fresh = nil
		if n.initial {
			v.fresh = map[string]version{}
		}
	case "listed":
		return v.listed(n)
	case "ADDED", "MODIFIED", "DELETED":
		v.tally.Events++
		if v.fresh != nil {
			return v.initial(n)
		}
		return v.event(n)
	case "BOOKMARK":
		v.tally.Bookmarks++
		return v.bookmark(n)
	default:
		return v.end(n)
	}
	return ""
}

// initial is one of the events that a stream begins with: the state, each object as often as it
// changes meanwhile.
func (v *verdict) initial(n note) string {
	if n.kind != "ADDED" {
		return n.kind + " among the initial events"
	}
	v.fresh[n.key] = n.version
	return ""
}

// listed is a state: it is the state that was there at its resourceVersion, and not older than what
// was requested.
func (v *verdict) listed(n note) string {
	v.tally.Lists++
	if n.asked.floor > 0 {
		v.tally.Consistent++
	}
	if n.version.rv < n.asked.floor {
		return fmt.Sprintf("a state at %d, older than %d, which was acknowledged before it was asked for", n.version.rv,
			n.asked.floor)
	}
	wrong := ""
	v.possible = nil
	for i := n.asked.era; i < len(v.truth); i++ {
		if w := v.shows(v.truth[i], n.state, n.version.rv); w != "" {
			wrong = w
		} else {
			v.possible = append(v.possible, i)
		}
	}
	if len(v.possible) == 0 {
		return fmt.Sprintf("a state at %d that never was: %s", n.version.rv, wrong)
	}
	v.held, v.fresh = maps.Clone(n.state), nil
	v.last = n.version.rv
	return ""
}

// shows says how a state differs from the one that was there at rv.
func (v *verdict) shows(t *timeline, state map[string]version, rv uint64) string {
	if rv > t.head {
		return fmt.Sprintf("%d is not there yet", rv)
	}
	want := t.state(v.journal.view, rv)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if held, ok := state[key]; !ok {
			return fmt.Sprintf("%s %+v is missing", key, want[key])
		} else if !held.same(want[key]) {
			return fmt.Sprintf("%s is %+v, not %+v", key, held, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if _, ok := want[key]; !ok {
			return fmt.Sprintf("%s %+v is a ghost", key, state[key])
		}
	}
	return ""
}

// narrow keeps the timelines on which something is true. Upstream may have gone on to a later one.
func (v *verdict) narrow(wrong func(*timeline) string) string {
	if len(v.possible) == 0 {
		return "an event before any state"
	}
	var still []int
	why := ""
	for i := v.possible[0]; i < len(v.truth); i++ {
		if w := wrong(v.truth[i]); w == "" {
			still = append(still, i)
		} else {
			why = w
		}
	}
	if len(still) == 0 {
		return why
	}
	v.possible = still
	return ""
}

// event is one after the initial ones.
func (v *verdict) event(n note) string {
	if !v.open {
		return "an event after the end"
	}
	seams := false
	wrong := v.narrow(func(t *timeline) string {
		w, s := v.explain(t, n)
		seams = seams || s
		return w
	})
	if wrong != "" {
		return wrong
	}
	if seams {
		v.tally.Seams++
	}
	v.last = max(v.last, n.version.rv)
	if n.kind == "DELETED" {
		delete(v.held, n.key)
	} else {
		v.held[n.key] = n.version
	}
	return ""
}

// explain says what is wrong with an event on a timeline, and whether it is part of a seam.
func (v *verdict) explain(t *timeline, n note) (wrong string, inSeam bool) {
	held, holds := v.held[n.key]
	seams := v.excuses.allow(seam, n.at)
	happened := t.seen(v.journal.view, n.key, n.version.rv)
	rv := n.version.rv
	ordinary := rv > v.last
	switch n.kind {
	case "ADDED", "MODIFIED":
		is := t.at(v.journal.view.resource, n.key, rv)
		switch {
		case !ordinary:
			return fmt.Sprintf("%d comes after %d", rv, v.last), false
		case !n.version.same(is) || !v.journal.view.sees(n.key, is):
			return fmt.Sprintf("what happened at %d is %+v", rv, is), false
		case n.kind == "ADDED" && holds:
			return fmt.Sprintf("ADDED, but the client holds %+v", held), false
		case n.kind == "MODIFIED" && (!holds || held.uid != n.version.uid):
			return "MODIFIED, but the client does not hold it", false
		}
	case "DELETED":
		switch {
		case ordinary && holds && happened.kind == "DELETED" &&
			(n.version.same(happened.version) || seams && n.version.uid == happened.version.uid):
		case seams && rv >= v.last && holds && held.uid == n.version.uid && t.leaves(v.journal.view, n.key, held):
			return "", true // of a seam: at the resourceVersion before it, or the one after it
		case seams && rv == v.last && rv == v.from && !holds:
			return "", true // of a seam, again: the client resumed just before it
		case !holds:
			return "DELETED, but the client does not hold it", false
		default:
			return fmt.Sprintf("DELETED after %d, of %+v; what happened is %+v", v.last, held, happened), false
		}
	}
	if missed, ok := t.between(v.journal.view, v.last, rv); ok {
		if !seams {
			return fmt.Sprintf("%+v is missing", missed), false
		}
		return "", true
	}
	return "", false
}

// bookmark is the promise that the client has received all up to a resourceVersion.
func (v *verdict) bookmark(n note) string {
	rv := n.version.rv
	switch {
	case !v.open:
		return "a bookmark after the end"
	case v.fresh != nil:
		return "a bookmark among the initial events"
	case rv < v.last:
		return fmt.Sprintf("a bookmark at %d after %d", rv, v.last)
	}
	if wrong := v.narrow(func(t *timeline) string { return v.shows(t, v.held, rv) }); wrong != "" {
		return fmt.Sprintf("a bookmark at %d, but %s", rv, wrong)
	}
	v.last = rv
	return ""
}

// end is the end of a stream, or an answer that is none.
func (v *verdict) end(n note) string {
	// else it may end at any time: what it has shown may have gone, or be impossible to prove (W-215,
	// W-216)
	begun := v.fresh == nil
	v.open, v.fresh = false, nil
	allow := func(what ...effect) bool {
		return slices.ContainsFunc(what, func(w effect) bool { return v.excuses.allow(w, n.at) })
	}
	switch n.kind {
	case "ended":
		if n.early && begun && !allow(cut, refuse, seam, remove, rewrite) {
			return "the stream ended before its time"
		}
	case "broken":
		v.tally.Breaks++
		if !allow(cut, refuse, rewrite) {
			return "a connection broke: " + n.text
		}
	case "shown":
		return "who may see nothing is shown: " + n.text
	case "ERROR", "refused":
		return v.refused(n, allow)
	}
	return ""
}

func (v *verdict) refused(n note, allow func(...effect) bool) string {
	switch {
	case n.code == 410:
		v.tally.Expired++
		if !allow(expire, rewrite) {
			return "the client has to begin again: " + n.text
		}
		return ""
	case n.code == 404 && allow(remove):
	case n.code == 403 && allow(deny):
	case (n.code == 429 || n.code >= 500) && allow(refuse, cut, remove):
	default:
		return fmt.Sprintf("%s: %d %s", n.kind, n.code, n.text)
	}
	v.tally.Refusals++
	return ""
}

// reading is a GET of one object that requests its most recent version.
type reading struct {
	era   int
	key   string
	found version // gone if it was not there
	acked ack     // the last write to it that was acknowledged before
}

// ack is an acknowledged write.
type ack struct {
	key  string
	rv   uint64 // 0 for a deletion
	uid  string // of what was deleted
	era  int
	done bool
}

// since is from when on what a reading finds must have been there.
func (a ack) since(t *timeline, resource string) uint64 {
	if a.rv > 0 {
		return a.rv
	}
	for _, o := range t.objects[resource][a.key] {
		if o.gone && o.uid == a.uid {
			return o.rv
		}
	}
	return 0
}

// read judges a GET: what it found was there at some time after the acknowledged write.
func (o *oracle) read(resource string, r reading) error {
	why := ""
	for i := r.era; i < len(o.truth); i++ {
		t := o.truth[i]
		since := uint64(0)
		if r.acked.done && r.acked.era == r.era {
			since = r.acked.since(t, resource)
		}
		versions := t.objects[resource][r.key]
		if i := after(versions, since); i > 0 {
			versions = versions[i-1:]
		} else if r.found.gone {
			return nil // it had not been there yet
		}
		for _, is := range versions {
			if is.same(r.found) || is.gone && r.found.gone {
				return nil
			}
		}
		why = fmt.Sprintf("since %d it has been %+v", since, versions)
	}
	return fmt.Errorf("a GET of %s %s finds %+v, but %s", resource, r.key, r.found, why)
}
