package watchstart

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/test/framework/exchange"
)

// story is what must have come on a watch whose client wrote a script once it had the head.
type story struct {
	start
	name    string            // of the object that the script creates
	head    uint64            // the version of the last write before the head
	objects map[string]uint64 // the versions of those that were there then
	before  []write           // all that was written up to the head
	script  []write
}

// live are the writes of the script that the watch shows.
func (s *story) live() (all []write) {
	for _, w := range s.script {
		if w.seen(s.selection, s.name) != "" {
			all = append(all, w)
		}
	}
	return all
}

// enough reports that a watch has shown the last write of the script that it sees, and ended its
// initial events; or that it has failed.
func (s *story) enough(got []exchange.Event) bool {
	live := s.live()
	last, ended := live[len(live)-1], !s.ends()
	shown := false
	for _, e := range got {
		if e.Type == "ERROR" || e.Type == "" {
			return true
		}
		ended = ended || e.End
		if last.version > 0 {
			shown = shown || e.Type != "BOOKMARK" && e.Version >= last.version
		} else {
			shown = shown || e.Type == "DELETED" && isNamed(e, last.name) && !relabelled(e, live)
		}
	}
	return shown && ended
}

// relabelled reports that a deletion is that of an object that has left the selection.
func relabelled(e exchange.Event, live []write) bool {
	return slices.ContainsFunc(live, func(w write) bool { return w.version == e.Version })
}

// split are the events up to the head and those that followed it, without bookmarks.
func (s *story) split(got []exchange.Event) (early, live []exchange.Event) {
	for _, e := range got {
		switch {
		case e.Type == "BOOKMARK":
		case e.Version > s.head:
			live = append(live, e)
		default:
			early = append(early, e)
		}
	}
	return early, live
}

// judge holds what came against the story and against the API server's own watch. The result is
// what is wrong.
func (s *story) judge(got, direct []exchange.Event) (wrong []string) {
	early, live := s.split(got)
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if why := s.order(got); why != "" {
		fail("%s", why)
	}
	if why := s.judgeEarly(early, direct); why != "" {
		fail("%s", why)
	}
	want := s.live()
	_, directly := s.split(direct)
	for i := range max(len(live), len(want)) {
		switch {
		case i >= len(live):
			fail("event %d after the head, %s %s, is missing", i, want[i].seen(s.selection, s.name), want[i].name)
			return wrong
		case i >= len(want):
			fail("event %d after the head is one too many: %s", i, exchange.Clip(live[i].Line))
			return wrong
		}
		typ, name := want[i].seen(s.selection, s.name), want[i].name
		if e := live[i]; e.Type != typ || !isNamed(e, name) || want[i].version > 0 && e.Version != want[i].version {
			fail("event %d after the head is %s %s %d, not %s %s %d", i, e.Type, e.Name, e.Version, typ, name,
				want[i].version)
			return wrong
		}
		if i < len(directly) && !bytes.Equal(live[i].Line, directly[i].Line) {
			fail("event %d after the head is\n  %s directly\n  %s", i, directly[i].Line, live[i].Line)
		}
	}
	return wrong
}

func isNamed(e exchange.Event, name string) bool { return strings.HasSuffix(e.Name, "/"+name) }

// judgeEarly holds what came up to the head against the objects or the writes of that time.
func (s *story) judgeEarly(early, direct []exchange.Event) string {
	directly, _ := s.split(direct)
	switch s.place {
	case events:
		if !slices.EqualFunc(early, directly, sameLine) {
			return fmt.Sprintf("up to the head came%s, directly%s", summary(early), summary(directly))
		}
	case now:
		if s.beginning.query == noInitial && len(early) > 0 {
			return "what is older than the request came:" + summary(early)
		}
		for _, e := range early {
			if !s.written(e) {
				return "what was not written so came:" + summary([]exchange.Event{e})
			}
		}
	case state:
		return s.judgeState(early, directly)
	}
	return ""
}

func sameLine(a, b exchange.Event) bool { return bytes.Equal(a.Line, b.Line) }

// written reports that an event is that of a write up to the head.
func (s *story) written(e exchange.Event) bool {
	return slices.ContainsFunc(s.before, func(w write) bool {
		return w.seen(s.selection, s.name) == e.Type && isNamed(e, w.name) && (w.version == e.Version || w.version == 0)
	})
}

// judgeState folds what came up to the head: the result is what was there.
func (s *story) judgeState(early, directly []exchange.Event) string {
	held := map[string]exchange.Event{}
	for _, e := range early {
		_, name, _ := strings.Cut(e.Name, "/")
		_, has := held[name]
		switch {
		case has == (e.Type == "ADDED"):
			return fmt.Sprintf("%s %s comes where the object is there: %t", e.Type, e.Name, has)
		case e.Type == "DELETED":
			delete(held, name)
		default:
			held[name] = e
		}
	}
	versions := map[string]uint64{}
	for name, e := range held {
		versions[name] = e.Version
	}
	want := maps.Clone(s.objects)
	if s.one {
		want = map[string]uint64{}
	}
	if !maps.Equal(versions, want) {
		return fmt.Sprintf("the state is %v, not %v", versions, want)
	}
	for _, e := range directly {
		_, name, _ := strings.Cut(e.Name, "/")
		if own, ok := held[name]; ok && own.Version == e.Version && own.Type == e.Type && !sameLine(own, e) {
			return fmt.Sprintf("an object is\n  %s directly\n  %s", e.Line, own.Line)
		}
	}
	return ""
}

// order checks what a watch promises by itself: the state comes first; what follows is in order; a
// bookmark is not below an event before it, and no event after it is at or below it.
func (s *story) order(got []exchange.Event) string {
	var live, reached, promised uint64
	ends := 0
	for i, e := range got {
		switch {
		case e.Type == "" || e.Type == "ERROR":
			return fmt.Sprintf("event %d: %s", i, exchange.Clip(e.Line))
		case e.Type == "BOOKMARK" && !s.bookmarks:
			return "a bookmark, without a request for it"
		case e.Type == "BOOKMARK" && e.Version < max(promised, reached):
			return fmt.Sprintf("a bookmark at %d behind %d", e.Version, max(promised, reached))
		case e.Type == "BOOKMARK":
			promised = e.Version
		case e.Version <= promised:
			return fmt.Sprintf("%s %s %d behind a bookmark at %d", e.Type, e.Name, e.Version, promised)
		case live > 0 && e.Version <= live:
			return fmt.Sprintf("%s %s %d behind %d", e.Type, e.Name, e.Version, live)
		case e.Version > s.head:
			live = e.Version
		}
		reached = max(reached, e.Version)
		if e.End {
			ends++
			if s.beginning.query == "" || s.beginning.query == initial {
				if e.Version < s.head {
					return fmt.Sprintf("the initial events end at %d, before the request", e.Version)
				}
			}
		}
	}
	if ends > 1 || ends == 1 && !s.ends() {
		return fmt.Sprintf("the initial events end %d times", ends)
	}
	return ""
}

// summary is a short form of a sequence of events.
func summary(events []exchange.Event) string {
	var b strings.Builder
	for _, e := range events[max(0, len(events)-30):] {
		fmt.Fprintf(&b, " %s %s %d", e.Type, e.Name, e.Version)
		if e.End {
			b.WriteString(" (end)")
		}
		b.WriteString(",")
	}
	return b.String()
}
