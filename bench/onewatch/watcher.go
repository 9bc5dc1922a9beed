package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
)

// watcher is one of the many: it starts in one of the ways that clients do, and goes on from where
// it was when its watch ends, as client-go does.
type watcher struct {
	// Static after construction.
	client  *http.Client
	base    string // of the proxy
	scope   scope
	start   string        // initialEvents, fromList, fromState
	timeout time.Duration // of each watch; 0 leaves it to the server

	// The watcher's own, until it has stopped.
	began   uint64 // the version it is complete through before its first event
	seen    []receivedEvent
	initial map[string]uint64 // the state it began with
	at      uint64            // the version it is complete through
	problem error

	count    atomic.Int64 // events after the initial ones
	restarts atomic.Int64
	started  atomic.Bool // the initial state is complete
}

const (
	initialEvents = "sendInitialEvents" // a watch-list, as informers since client-go 1.35
	fromList      = "list, then watch"  // RV=0, as informers before
	fromState     = "watch from 0"      // synthetic ADDED events, no end mark
)

func (w *watcher) collection() string {
	if w.scope.namespace == "" {
		return w.base + "/api/v1/" + resource
	}
	return w.base + "/api/v1/namespaces/" + w.scope.namespace + "/" + resource
}

func (w *watcher) query() url.Values {
	q := url.Values{"allowWatchBookmarks": {"true"}}
	if !w.scope.selector.Empty() {
		q.Set("labelSelector", w.scope.selector.String())
	}
	if w.timeout > 0 {
		q.Set("timeoutSeconds", strconv.Itoa(int(w.timeout.Seconds())))
	}
	return q
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	err := w.begin(ctx)
	for err == nil {
		query := w.query()
		query.Set("resourceVersion", strconv.FormatUint(w.at, 10))
		err = w.follow(ctx, query)
		w.restarts.Add(1)
	}
	if ctx.Err() == nil {
		w.problem = err
	}
}

// begin brings the watcher to the end of its initial state; from there it can go on by version.
func (w *watcher) begin(ctx context.Context) error {
	w.initial = map[string]uint64{}
	switch w.start {
	case fromList:
		list, err := readList(ctx, w.client, w.collection(), url.Values{
			"resourceVersion": {"0"}, "labelSelector": {w.scope.selector.String()},
		})
		if err != nil {
			return err
		}
		w.initial, w.at = list.items, list.rv
		w.startedAt(list.rv)
		return nil
	case initialEvents:
		query := w.query()
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		return w.follow(ctx, query)
	default:
		query := w.query()
		query.Set("resourceVersion", "0")
		return w.follow(ctx, query)
	}
}

func (w *watcher) startedAt(rv uint64) {
	w.began, w.at = rv, rv
	w.started.Store(true)
}

// follow reads one watch to its clean end.
func (w *watcher) follow(ctx context.Context, query url.Values) error {
	watch, err := rig.OpenWatch(ctx, w.client, w.collection(), query)
	if err != nil {
		return err
	}
	defer watch.Close()
	// The state of a watch from 0 has no end mark. It was written before all else, so its size says
	// when it is complete.
	expecting := 0
	if !w.started.Load() && w.start == fromState {
		expecting = w.initialCount()
	}
	for {
		e, err := watch.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after version %d: %w", w.at, err)
		}
		if err := w.take(e, expecting); err != nil {
			return err
		}
	}
}

// initialCount is how many objects the first state holds in this scope.
func (w *watcher) initialCount() int { return len(firstState.state(w.scope, ^uint64(0))) }

func (w *watcher) take(e rig.Event, expecting int) error {
	switch {
	case e.Type == "ERROR":
		return fmt.Errorf("after version %d: %s", w.at, e.Line)
	case e.InitialEnd():
		w.startedAt(e.RV)
	case e.Type == "BOOKMARK":
		if e.RV < w.at {
			return fmt.Errorf("bookmark at %d after version %d", e.RV, w.at)
		}
		w.at = e.RV
	case !w.started.Load():
		if e.Type != "ADDED" {
			return fmt.Errorf("%s among the initial events", e.Type)
		}
		w.initial[e.Key()] = e.RV
		if len(w.initial) == expecting {
			w.startedAt(firstState.changes[len(firstState.changes)-1].rv)
		}
	default:
		w.seen = append(w.seen, receivedEvent{e.Type, e.Key(), e.RV})
		w.at = e.RV
		w.count.Add(1)
	}
	return nil
}

// verify compares with the acknowledged writes, after the watcher has stopped.
func (w *watcher) verify(t *acknowledgedWrites) error {
	if w.problem != nil {
		return w.problem
	}
	if !w.started.Load() {
		return errors.New("its initial state never ended")
	}
	if d := stateDifference(w.initial, t.state(w.scope, w.began)); d != "" {
		return fmt.Errorf("initial state at %d: %s", w.began, d)
	}
	if d := difference(w.seen, t.expected(w.scope, w.began)); d != "" {
		return errors.New(d)
	}
	return nil
}

// stateDifference describes how two states differ, "" if they do not.
func stateDifference(got, want map[string]uint64) string {
	var wrong []string
	for key, rv := range want {
		if got[key] != rv {
			wrong = append(wrong, fmt.Sprintf("%s at %d, expected %d", key, got[key], rv))
		}
	}
	for key, rv := range got {
		if _, ok := want[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s at %d, expected none", key, rv))
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	slices.Sort(wrong)
	return fmt.Sprintf("%d objects differ, first: %s", len(wrong), wrong[0])
}
