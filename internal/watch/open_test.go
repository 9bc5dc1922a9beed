package watch

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"spillway/internal/plan"
)

const (
	watchList   = "/api/v1/pods?watch=1&allowWatchBookmarks=1"
	unmarkedNow = "/api/v1/pods?watch=1" // consistent, without a bookmark when the state is complete
	notOlder    = "&resourceVersionMatch=NotOlderThan"
)

// actingSink is the connection of a client that acts the moment it has the head of the answer.
type actingSink struct {
	*ConnSink
	act func()
}

func (s actingSink) begin() error {
	err := s.ConnSink.begin()
	s.act()
	return err
}

// Whatever a client does once it has the head of a watch is an event of that watch, wherever the
// watch begins (W-100, W-102).
func TestWhatFollowsTheHeadIsAnEvent(t *testing.T) {
	const selected = "&labelSelector=app%3Dx"
	acts := []string{"ADDED a/y 111", "MODIFIED a/y 112", "DELETED a/y 113"}
	for _, c := range []struct {
		name, query string
		before      []string
	}{
		{"unset", unmarkedNow, []string{"ADDED a/x 5"}},
		{"unset, with bookmarks", watchList, []string{"ADDED a/x 5", "BOOKMARK 110 end"}},
		{"a watch-list", watchList + "&sendInitialEvents=true" + notOlder, []string{"ADDED a/x 5", "BOOKMARK 110 end"}},
		{"0", unmarkedNow + "&resourceVersion=0", []string{"ADDED a/x 5"}},
		{"not older than N", unmarkedNow + "&resourceVersion=90&sendInitialEvents=true" + notOlder, []string{"ADDED a/x 5"}},
		{"not older than upstream's present", watchList + "&resourceVersion=110&sendInitialEvents=true" + notOlder,
			[]string{"ADDED a/x 5", "BOOKMARK 110 end"}},
		{"events from now", unmarkedNow + "&resourceVersion=0&sendInitialEvents=false" + notOlder, nil},
		{"events from upstream's present", unmarkedNow + "&sendInitialEvents=false" + notOlder, nil},
		{"events from N", unmarkedNow + "&resourceVersion=100", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, d delivery) {
				w := newWorld(t, d, "a/x 5 app=x")
				w.oracle.Set(110, nil)
				p := w.watchAs(c.query+selected, StreamOptions{}, func(st *Stream) {
					st.out = actingSink{st.out.(*ConnSink), func() {
						w.set("a/y 111 app=x")
						w.set("a/y 112 app=x")
						w.set("a/y 113 app=z")
					}}
				})
				time.Sleep(5 * time.Second)
				p.gets(append(c.before, acts...)...)
				p.goesOn()
			})
		})
	}
}

// The head of a consistent watch waits for the proof, as kube-apiserver's does. What happens
// meanwhile is part of the state (design D7, W-215).
func TestHeadWaitsForTheProof(t *testing.T) {
	for query, end := range map[string][]string{watchList: {"BOOKMARK 110 end"}, unmarkedNow: nil} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5", "a/y 6")
			w.oracle.Set(110, nil)
			w.oracle.Hold()
			p := w.watch(query)
			time.Sleep(time.Second)
			w.set("a/x 101")
			w.remove("a/y 102")
			time.Sleep(time.Second)
			if p.response() != nil {
				t.Fatal("a head without a proof")
			}
			w.oracle.Release()
			p.gets(append([]string{"ADDED a/x 101"}, end...)...)
			w.set("a/x 111")
			p.gets("MODIFIED a/x 111")
		})
	}
}

// An event newer than the question is a proof as good as a bookmark (W-211 l).
func TestAnEventIsAProof(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		p := w.watch(watchList)
		time.Sleep(time.Second)
		w.set("a/x 109")
		w.set("a/x 111")
		p.gets("ADDED a/x 111", "BOOKMARK 111 end")
		w.oracle.Release()
	})
}

// Without a bookmark until the watch for it ends nothing is answered: upstream has to (W-216).
func TestAWatchWithoutAProofPassesThrough(t *testing.T) {
	for _, query := range []string{watchList, unmarkedNow} {
		bubbles(t, func(t *testing.T, d delivery) {
			w := newWorld(t, d, "a/x 5")
			w.oracle.Set(110, nil)
			w.oracle.Hold()
			p := w.watch(query)
			time.Sleep(3*time.Second - 1)
			if refusal, over := p.opened(); over {
				t.Fatalf("gave up early: %v", refusal)
			}
			time.Sleep(100 * time.Millisecond) // the mirror's own stream had 25 ms
			p.unanswered()
			w.oracle.Release()
		})
	}
}

// unanswered checks that the request was left to upstream.
func (p *testClient) unanswered() {
	p.t.Helper()
	if refusal, over := p.opened(); !over || refusal == nil || p.stream != nil || refusal.Answer != nil {
		p.t.Fatalf("over: %t, refusal %+v", over, refusal)
	}
	if n := len(p.world.manager.Streams()); n != 0 {
		p.t.Errorf("%d streams are counted", n)
	}
}

// Nothing is proven while upstream does not answer, or while it is behind what it has promised
// (W-217).
func TestNothingToProveWith(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(0, errors.New("connection refused"))
		w.watch(watchList).unanswered()
		w.oracle.Set(90, nil)
		w.watch(unmarkedNow).unanswered()
	})
}

// A client that leaves while it waits gives everything back, and a proxy that drains refuses it.
func TestEndsWhileItWaits(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		w.oracle.Set(110, nil)
		w.oracle.Hold()
		left, drained := w.watch(watchList), w.watch(watchList)
		time.Sleep(time.Second)
		left.leave()
		if refusal, over := left.opened(); !over || refusal == nil || refusal.Answer == nil || !refusal.Answer.HangUp {
			t.Errorf("the client left: over: %t, refusal %+v", over, refusal)
		}
		w.manager.RefuseNew()
		w.oracle.Release()
		if refusal, over := drained.opened(); !over || refusal == nil || refusal.Answer == nil ||
			refusal.Answer.Code != http.StatusServiceUnavailable {
			t.Errorf("drained: over: %t, refusal %+v", over, refusal)
		}
	})
}

// A place in history that is given back before it is delivered holds nothing.
func TestAbandonedWatchHoldsNothing(t *testing.T) {
	bubbles(t, func(t *testing.T, d delivery) {
		w := newWorld(t, d, "a/x 5")
		for _, start := range []plan.WatchStart{plan.StateAny, plan.EventsFrom} {
			p := w.plan(unmarkedNow + "&resourceVersion=0")
			p.Watch.Start, p.Watch.RV = start, 100
			client := &testClient{left: make(chan struct{})}
			st, refusal := w.manager.Open(client.departs, p, StreamOptions{}, noFlow)
			if refusal != nil {
				t.Fatalf("refused: %+v", refusal)
			}
			st.Abandon()
			if n := w.source.Hub.Feeds(); n != 0 || st.beginning.state != nil {
				t.Errorf("%v: %d feeds, state %v", start, n, st.beginning.state)
			}
		}
	})
}
