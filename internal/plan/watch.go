package plan

import (
	"time"

	"spillway/internal/source"
)

// planWatch plans a WATCH by the table of W-100.
func (p *Planner) planWatch(s *source.Source, c collection) Plan {
	rv, err := parseRV(c.ResourceVersion)
	if err != nil {
		return refuse(s, err)
	}
	w := &WatchPlan{
		RV: rv, Start: c.start(rv), Bookmarks: c.AllowWatchBookmarks,
		EndMark: c.AllowWatchBookmarks && c.SendInitialEvents != nil && *c.SendInitialEvents,
		Timeout: c.timeout(),
	}
	if w.Timeout == 0 {
		w.Timeout = p.WatchTimeout()
	}
	plan := Plan{Action: FromCache, Source: s, Selector: c.selector, Watch: w}
	if w.Start == StateConsistent {
		plan.Action = FromCacheProven
		isOursAlone := p.Semantics.servesWatchLists() && p.Semantics.refusesWatchLists()
		switch {
		// A watch that ends before a proof can be expected goes upstream, where it needs none.
		case w.Timeout <= source.ArrivalTimeout && !isOursAlone:
			return Plan{}
		case s.Fresh.IsFailing():
			return Plan{Source: s, Doubtful: true}
		}
	}
	return plan
}

// start is what the watch begins with. sendInitialEvents, set by the client or by upstream's
// defaults, says whether it sends a state first. Without it only a watch from zero does, of any
// state.
func (c collection) start(rv uint64) WatchStart {
	isUnset := c.ResourceVersion == ""
	switch send := c.SendInitialEvents; {
	case send == nil && rv == 0:
		return StateAny
	case send == nil:
		return EventsFrom
	case *send && isUnset:
		return StateConsistent
	case *send && rv == 0:
		return StateAny
	case *send:
		return StateAtLeast
	case isUnset:
		return EventsFromNewest
	case rv == 0:
		return EventsFromNow
	}
	return EventsFrom
}

// timeout is how long the client wants to watch; 0: it does not say. A number of seconds that no
// duration can hold overflows as it does upstream (W-29).
func (c collection) timeout() time.Duration {
	if c.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*c.TimeoutSeconds) * time.Second
}
