package serve

import (
	"net/url"
	"time"
)

// planWatch plans a WATCH by the table of W-100, W-101.
func (p *Planner) planWatch(s *Source, t target, query url.Values) Plan {
	sel, ok := selector(s.Resource().Info, t, query)
	_, okLimit := queryInt(query, "limit")
	seconds, okTimeout := queryInt(query, "timeoutSeconds")
	if !ok || !okLimit || !okTimeout || seconds < 0 || seconds > maxWatchSeconds {
		return Plan{}
	}
	w, ok := watchStart(query)
	if !ok {
		return Plan{}
	}
	w.Bookmarks = queryBool(query, "allowWatchBookmarks")
	w.Timeout = time.Duration(seconds) * time.Second
	if seconds == 0 {
		w.Timeout = p.WatchTimeout()
	}
	action := FromCache
	if w.Start == StateConsistent {
		// What is to end before a proof can be expected had better be asked where none is needed.
		if s.Fresh.Doubtful() || w.Timeout <= proofWait {
			return Plan{}
		}
		action = FromCacheProven
	}
	return Plan{Action: action, Source: s, Selector: sel, Watch: w}
}

// maxWatchSeconds keeps a duration inside its type. Upstream does not cap (W-29); nobody watches longer than a century.
const maxWatchSeconds = 100 * 365 * 24 * 3600

// watchStart is what the watch begins with, or false if upstream must answer: it refuses some combinations (W-32), and
// "no state, but only what is newer than the store is now" is known to it alone.
func watchStart(query url.Values) (*WatchPlan, bool) {
	text, match := query.Get("resourceVersion"), query.Get("resourceVersionMatch")
	rv, ok := parseRV(text)
	if !ok {
		return nil, false
	}
	if !query.Has("sendInitialEvents") {
		switch {
		case match != "", rv == 0 && query.Get("continue") != "": // the options that upstream fills in forbid it (W-32, W-101)
			return nil, false
		case text == "":
			return &WatchPlan{Start: StateConsistent}, true
		case rv == 0:
			return &WatchPlan{Start: StateAny}, true
		}
		return &WatchPlan{RV: rv, Start: EventsFrom}, true
	}
	if match != matchNotOlderThan || query.Get("continue") != "" {
		return nil, false
	}
	initial := queryBool(query, "sendInitialEvents")
	switch {
	case initial && text == "":
		return &WatchPlan{Start: StateConsistent}, true
	case initial && rv == 0:
		return &WatchPlan{Start: StateAny}, true
	case initial:
		return &WatchPlan{RV: rv, Start: StateAtLeast}, true
	case text == "":
		return nil, false
	case rv == 0:
		return &WatchPlan{Start: EventsFromNow}, true
	}
	return &WatchPlan{RV: rv, Start: EventsFrom}, true
}
