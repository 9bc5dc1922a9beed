package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// watcher is a watch that is open on every side while the script of its resource is played, and
// receives the same events again from history afterwards.
type watcher struct {
	name   string
	rules  string
	path   string
	query  string // selectors and options
	until  string // "TYPE name" of the last event that is compared
	header map[string]string
}

// testLive opens the watchers of every resource on every side, writes, and compares what each of
// them received, event for event and byte for byte. Then it requests the same from history.
func (s *suite) testLive(t *testing.T) {
	for _, p := range s.plays() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s.play(t, p)
		})
	}
}

// writeScript is a script of writes and of the watches during them.
type writeScript struct {
	name     string
	resource string // whose list says where to begin
	watchers []watcher
	script   func(*testing.T)
}

// watcherGroup is one watcher on every side, in every protocol.
type watcherGroup struct {
	watcher
	atOnce  bool        // the first write comes when the heads are there, however much of the state is
	proxied []*endpoint // the ways through the proxy
	streams map[*endpoint]*stream
}

func (s *suite) sides() []*endpoint { return []*endpoint{s.direct, s.plain, s.secure} }

// ways are the ways through the proxy.
func (s *suite) ways() []*endpoint { return []*endpoint{s.plain, s.secure, s.secure2} }

// told are the sides that a group's watcher is open on.
func (s *suite) told(a *watcherGroup) (sides []*endpoint) {
	for _, e := range a.proxied {
		if direct := s.reference(a.watcher, e); !slices.Contains(sides, direct) {
			sides = append(sides, direct)
		}
	}
	return append(sides, a.proxied...)
}

// reference is the API server that a way through the proxy is compared with: the newest, where
// another may have no watch-lists, or other bookmarks.
func (s *suite) reference(w watcher, proxied *endpoint) *endpoint {
	switch {
	case s.skew == nil || !strings.Contains(w.query, marked) && !strings.Contains(w.query, "sendInitialEvents"):
		return s.straight(proxied)
	case proxied == s.secure2:
		return s.newest2
	}
	return s.newest
}

func (s *suite) play(t *testing.T, p writeScript) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	start := s.now(t, collections[p.resource])
	var audiences, atOnce []*watcherGroup
	p.watchers = slices.DeleteFunc(p.watchers, func(w watcher) bool { return !s.selectable(t, w) })
	for _, w := range p.watchers {
		for _, from := range []string{"&resourceVersion=" + start, "&resourceVersion=0" + marked, informer} {
			v := w
			v.name += " " + from
			v.query += from
			audiences = append(audiences, &watcherGroup{watcher: v, proxied: s.ways()})
		}
		if s.skew == nil { // an older API server's state may be of any age
			v := w
			v.name, v.query = v.name+" at once", v.query+marked
			atOnce = append(atOnce, &watcherGroup{watcher: v, atOnce: true, proxied: s.ways()})
		}
	}
	s.openAll(ctx, t, audiences...)
	s.openAll(ctx, t, atOnce...)
	p.script(t)
	stories := map[string][]event{}
	for _, a := range append(audiences, atOnce...) {
		told := s.hear(t, a)
		if strings.HasSuffix(a.name, "&resourceVersion="+start) {
			stories[strings.TrimSuffix(a.name, " &resourceVersion="+start)] = told
		}
	}
	for _, w := range p.watchers {
		s.replay(ctx, t, w, start, stories[w.name])
	}
}

// selectable reports whether the API server knows the selector of a watcher: an older one does not
// know all fields.
func (s *suite) selectable(t *testing.T, w watcher) bool {
	t.Helper()
	if s.skew == nil {
		return true
	}
	a, err := s.direct.Do(t.Context(), request{Target: w.path + "?resourceVersion=0" + w.query})
	must(t, err)
	return a.Status == http.StatusOK
}

// now is the resourceVersion of a collection.
func (s *suite) now(t *testing.T, path string) string {
	t.Helper()
	a, err := s.direct.Do(t.Context(), request{Target: path + "?limit=1"})
	must(t, err)
	return fmt.Sprint(listVersion(a.Body))
}

// openAll opens watchers on every side. Those that begin with state have seen it when the first
// write comes: their last initial event is the end bookmark.
func (s *suite) openAll(ctx context.Context, t *testing.T, audiences ...*watcherGroup) {
	t.Helper()
	var opening sync.WaitGroup
	var mu sync.Mutex
	for _, a := range audiences {
		a.streams = map[*endpoint]*stream{}
		for _, e := range s.told(a) {
			opening.Go(func() {
				st, err := a.open(ctx, t, e)
				if err != nil {
					t.Errorf("%s: %s: %v", e.Name, a.name, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				a.streams[e] = st
			})
		}
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// open opens it on one side, and reads the state that it begins with. Where the state could not be
// proven in time the API server itself answers (W-216): the watch is opened again until it is
// answered from memory. So is one that is refused because many wait for late answers.
func (a *watcherGroup) open(ctx context.Context, t *testing.T, e *endpoint) (*stream, error) {
	for {
		st, err := e.open(ctx, request{Target: a.path + "?watch=1&timeoutSeconds=600" + a.query, Header: a.header})
		if errors.Is(err, errBusy) && !late.Prompt() {
			select {
			case <-time.After(time.Second): // as its Retry-After says
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			return nil, err
		}
		t.Cleanup(st.cancel)
		if a.atOnce || !strings.Contains(a.query, marked) {
			return st, nil
		}
		st.events, err = st.until(ctx, func(e event) bool { return e.End || e.Type == "ERROR" })
		if passed := st.header.Get(exchange.FlowControl) != ""; err != nil || !passed || e.metrics == "" || !late.Prompt() {
			return st, err
		}
		st.cancel()
	}
}

// collect reads events up to the one that is wanted.
func collect(ctx context.Context, t *testing.T, s *stream, wanted func(event) bool) []event {
	t.Helper()
	events, err := s.until(ctx, wanted)
	if err != nil {
		t.Errorf("%v after %s", err, summary(events))
	}
	return events
}

// errEnded says that a watch ended cleanly.
var errEnded = errors.New("the watch ended")

// until reads events up to the one that is wanted. Its error says why that did not come.
func (s *stream) until(ctx context.Context, wanted func(event) bool) (events []event, err error) {
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return events, cmp.Or(s.err, errEnded)
			}
			e := exchange.ParseEvent(line)
			if events = append(events, e); wanted(e) {
				return events, nil
			}
		case <-ctx.Done():
			return events, context.Cause(ctx)
		}
	}
}

// summary is a short form of a sequence of events.
func summary(events []event) string {
	var b strings.Builder
	for _, e := range events[max(0, len(events)-30):] {
		fmt.Fprintf(&b, " %s %s %d,", e.Type, e.Name, e.Version)
	}
	return b.String()
}

func (w watcher) last(e event) bool {
	typ, name, _ := strings.Cut(w.until, " ")
	return e.Type == typ && (e.Name == name || strings.HasSuffix(e.Name, "/"+name))
}

// hear collects what a watcher received from every side and compares it. It returns the API
// server's version.
func (s *suite) hear(t *testing.T, a *watcherGroup) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	told, err := s.collectAll(ctx, a)
	must(t, err)
	for _, e := range a.proxied {
		direct := s.reference(a.watcher, e)
		if a.atOnce {
			s.sameEvents(t, a.watcher, e.Name, told[direct], told[e])
			continue
		}
		s.sameStory(t, a.watcher, e.Name, a.streams[direct], told[direct], a.streams[e], told[e])
	}
	return told[s.reference(a.watcher, s.plain)]
}

// collectAll collects what a watcher received from every side, directly first. Its error says on
// which side the last event did not come.
func (s *suite) collectAll(ctx context.Context, a *watcherGroup) (told map[*endpoint][]event, err error) {
	told = map[*endpoint][]event{}
	for _, e := range s.told(a) {
		st := a.streams[e]
		events, err := st.until(ctx, a.last)
		st.cancel()
		if told[e] = append(st.events, events...); err != nil {
			return told, fmt.Errorf("%s, %s: %w after %s", e.Name, a.name, err, summary(told[e]))
		}
	}
	return told, nil
}

// sameStory compares two streams.
func (s *suite) sameStory(t *testing.T, w watcher, who string, direct *stream, told []event, proxied *stream,
	heard []event) {
	t.Helper()
	r := request{Target: w.path + "?watch=1" + w.query, Header: w.header}
	c := exchange.Compare(s.tally, r, &answer{Status: 200, Header: direct.header, Body: join(told)},
		&answer{Status: 200, Header: proxied.header, Body: join(heard)})
	if s.skew != nil && strings.Contains(w.query, marked) {
		s.skew.Recompare(c)
	}
	for _, problem := range c.Problems {
		t.Errorf("%s: %s: %s", who, w.name, problem)
	}
	if !c.FromMemory && late.Prompt() {
		t.Errorf("%s: %s: not answered from memory", who, w.name)
	}
	s.show(t, w.rules, c.By())
}

// sameEvents compares two streams by compareUnmarked.
func (s *suite) sameEvents(t *testing.T, w watcher, who string, told, heard []event) {
	t.Helper()
	for _, problem := range s.compareUnmarked(w, told, heard) {
		t.Errorf("%s: %s: %s", who, w.name, problem)
	}
	s.show(t, w.rules, either)
}

// compareUnmarked compares two streams but for the bookmark at the end of the initial events, which
// may come before or after what was written meanwhile.
func (s *suite) compareUnmarked(w watcher, told, heard []event) []string {
	unmarked := func(all []event) []event {
		return slices.DeleteFunc(slices.Clone(all), func(e event) bool { return e.End })
	}
	r := request{Target: w.path + "?watch=1" + w.query}
	return exchange.CompareEvents(s.tally, r, unmarked(told), unmarked(heard)).Problems
}

func join(events []event) []byte {
	var b []byte
	for _, e := range events {
		b = append(b, e.Line...)
	}
	return b
}

// replay requests the events again from every side, from history, and expects the very ones that
// were received live.
func (s *suite) replay(ctx context.Context, t *testing.T, w watcher, start string, live []event) {
	t.Helper()
	w.query += "&resourceVersion=" + start
	a := &watcherGroup{watcher: w, proxied: s.ways()}
	a.name += " from history"
	s.openAll(ctx, t, a)
	told := s.hear(t, a)
	c := exchange.CompareEvents(s.tally, request{Target: w.path + "?watch=1" + w.query}, live, told)
	if len(c.Problems) > 0 {
		t.Errorf("%s: not what was sent live: %v", w.name, c.Problems)
	}
}
