package serve

import (
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

// Action is how a request is answered.
type Action int

// The four answers (design D1). Refusals are upstream's own: a request that it would refuse goes there and is refused in its
// own words, so Upstream is also the answer to everything malformed.
const (
	Upstream Action = iota
	FromCache
	// FromCacheProven: from the cache once it is proven not older than the request.
	FromCacheProven
)

// Plan is how one request is answered, and everything that the answer needs. Made by Planner.Plan.
type Plan struct {
	Action   Action
	Source   *Source
	Selector object.Selector
	Get      *GetPlan
	List     *ListPlan
	Watch    *WatchPlan
}

// GetPlan is a GET of one object: from any state at or above RV (W-95).
type GetPlan struct{ Key string }

// ListPlan is a LIST (W-63).
type ListPlan struct {
	RV    uint64 // at least, or exactly
	Exact bool
	Limit int64  // 0: none
	Start string // key to begin with, "" the first
}

// WatchPlan is a WATCH (W-100).
type WatchPlan struct {
	RV        uint64
	Start     WatchStart
	Bookmarks bool
	// Timeout is how long the watch lasts.
	Timeout time.Duration
}

// WatchStart is what a watch begins with (W-100).
type WatchStart int

// The starts of a watch.
const (
	StateAny        WatchStart = iota // the state, of any age
	StateAtLeast                      // the state, not older than RV
	StateConsistent                   // the state, not older than the request
	EventsFrom                        // the events above RV
	EventsFromNow                     // the events from the cache's present on
)

// Planner decides how requests are answered. Pure: it looks at the request and at the catalog, and does nothing.
type Planner struct {
	Catalog Catalog
	// WatchTimeout chooses how long a watch lasts that does not say (W-29).
	WatchTimeout func() time.Duration
}

// Plan decides how a request is answered. What the cache cannot answer exactly as upstream would goes upstream: there is no
// third way (design D1).
func (p *Planner) Plan(r Request) Plan {
	if r.Method != http.MethodGet || !r.Trusted || r.Upgrade || !acceptsJSON(r.Accept) {
		return Plan{}
	}
	t, ok := parseTarget(r.Path)
	if !ok {
		return Plan{}
	}
	query, _ := url.ParseQuery(r.RawQuery) // drops what Go drops (W-24)
	if query.Has("shardSelector") {
		return Plan{}
	}
	watch := t.name == "" && queryBool(query, "watch")
	if !watch && (wantsPretty(query.Get("pretty"), r.UserAgent) || !plainTimeout(query)) {
		return Plan{}
	}
	if t.name != "" && query.Get("resourceVersion") == "" {
		return Plan{} // a consistent GET passes through at once (design D7)
	}
	source := p.find(t)
	if source == nil {
		return Plan{}
	}
	switch {
	case t.name != "":
		return planGet(source, t, query)
	case watch:
		return p.planWatch(source, t, query)
	default:
		return planList(source, t, query)
	}
}

// find is the source of a target whose scope fits the resource; upstream answers 404 to the others (W-172).
func (p *Planner) find(t target) *Source {
	if t.gvr == (schema.GroupVersionResource{}) {
		return nil
	}
	s := p.Catalog.Find(t.gvr)
	if s == nil {
		return nil
	}
	info := s.Resource().Info
	if t.namespace != "" && !info.Namespaced || t.name != "" && t.namespace == "" && info.Namespaced {
		return nil
	}
	return s
}

// plainTimeout reports that a timeout parameter, if there is one, is what upstream takes: it would refuse others (W-28).
func plainTimeout(query url.Values) bool {
	text := query.Get("timeout")
	if text == "" {
		return true
	}
	_, err := time.ParseDuration(text)
	return err == nil
}

// planGet plans a GET with a resourceVersion.
func planGet(s *Source, t target, query url.Values) Plan {
	rv, ok := parseRV(query.Get("resourceVersion"))
	if !ok || query.Has("export") || s.Resource().Through() < rv {
		return Plan{}
	}
	key := t.name
	if t.namespace != "" {
		key = t.namespace + "/" + t.name
	}
	return Plan{Action: FromCache, Source: s, Get: &GetPlan{Key: key}}
}
