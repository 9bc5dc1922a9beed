package plan

import (
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/apistatus"
	"spillway/internal/object"
	"spillway/internal/source"
)

// Action is how a request is answered.
type Action int

// The four answers (design D1).
const (
	// Upstream: passed through. Whatever is in doubt is.
	Upstream Action = iota
	FromCache
	// FromCacheProven: from the cache once it is proven not older than the request.
	FromCacheProven
	// Refuse: with the Status that upstream would answer with.
	Refuse
)

// Plan is how one request is answered, and everything that the answer needs. Made by Planner.Plan.
type Plan struct {
	Action   Action
	Source   *source.Source
	Status   *metav1.Status // of a refusal
	Early    bool           // of a refusal: upstream has not looked at the resource yet, so it says nothing of it (W-23)
	Doubtful bool           // goes upstream since the cache cannot be proven at present
	Selector object.Selector
	AnswerForm
	Get   *GetPlan
	List  *ListPlan
	Watch *WatchPlan
}

// GetPlan is a GET of one object: from any state at or above RV (W-95).
type GetPlan struct {
	Key  string
	Name string
	RV   uint64
	// Hurried: the client may give up before the cache has reached RV (W-28), and hears of that from
	// upstream.
	Hurried bool
}

// ListPlan is a LIST (W-63).
type ListPlan struct {
	RV    uint64 // at least, or exactly
	Exact bool
	Limit int64  // 0: none
	Start string // key to begin with, "" the first
	// Scanned is the range in which a page that is full looks for more: if it holds a key after the
	// last one, the list has a continue token, whether that key is selected or not (W-69).
	Scanned object.Selector
	Hurried bool // as in GetPlan
}

// WatchPlan is a WATCH (W-100).
type WatchPlan struct {
	RV        uint64
	Start     WatchStart
	Bookmarks bool
	// EndMark: a bookmark of its own kind ends the initial events. This is what a client calls a
	// watch-list (W-101), and not every watch that begins with the state has it.
	EndMark bool
	// Timeout is how long the watch lasts. One that is not positive is over before it begins (W-29).
	Timeout time.Duration
}

// WatchStart is what a watch begins with (W-100).
type WatchStart int

// The starts of a watch.
const (
	StateAny         WatchStart = iota // the state, of any age
	StateAtLeast                       // the state, not older than RV
	StateConsistent                    // the state, not older than the request
	EventsFrom                         // the events above RV
	EventsFromNow                      // the events from the cache's present on
	EventsFromNewest                   // the events from upstream's present on
)

// Planner decides how requests are answered. Pure: it looks at the request and at the catalog, and
// does nothing.
type Planner struct {
	Catalog source.Catalog
	// WatchTimeout chooses how long a watch lasts that does not say (W-29).
	WatchTimeout func() time.Duration
	// Semantics are whose answers requests get where versions of Kubernetes differ.
	Semantics Semantics
}

// Semantics are whose answers requests get where versions of Kubernetes differ. The zero value is
// the newest version's, before an upstream of that version.
type Semantics struct {
	// OfUpstream: those of upstream's version and gates, refusals included. Otherwise they are the
	// newest version's, whatever upstream's are, so that a request gets the same answer always.
	OfUpstream bool
	// RefusesWatchLists reports that upstream does; nil: it does not.
	RefusesWatchLists func() bool
}

func (s Semantics) refusesWatchLists() bool {
	return s.RefusesWatchLists != nil && s.RefusesWatchLists()
}

// watchLists reports whether watch-lists are served (W-101).
func (s Semantics) watchLists() bool { return !s.OfUpstream || !s.refusesWatchLists() }

// Candidate is a request that may be answered from memory, as far as is known before
// authentication.
type Candidate struct {
	Request
	target Target
	query  url.Values
}

// Consider reports whether a request may be answered from memory, if its sender may read what it
// requests. All others go upstream, whatever their senders. It starts nothing: a client without
// rights causes no mirror.
func (p *Planner) Consider(r Request) (Candidate, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !r.Plain || Overfull(r.RawQuery) {
		return Candidate{}, false
	}
	t, ok := ParseTarget(r.Path)
	if !ok || !p.Catalog.Knows(t.gvr) {
		return Candidate{}, false
	}
	c := Candidate{r, t, r.Query()}
	if r.WebSocket && (r.Method != http.MethodGet || !t.Watches(c.query)) {
		return Candidate{}, false // upstream looks at the handshake of a watch alone
	}
	if t.object() && c.query.Get("resourceVersion") == "" {
		return Candidate{}, false // a consistent GET passes through at once: nothing is sooner (design D7)
	}
	if _, err := queryTimeout(c.query); err != nil && !t.Watches(c.query) {
		return Candidate{}, false // upstream refuses it before authentication (W-30)
	}
	return c, true
}

// Decide makes the plan of a candidate whose sender may read what it requests. What the cache
// cannot answer exactly as upstream would, and what cannot be refused in exactly its words, goes
// upstream: there is no third way (design D1).
func (p *Planner) Decide(c Candidate) Plan {
	t, query := c.target, c.query
	source := p.Catalog.Find(t.gvr)
	if source == nil || !t.fits(source.Resource().Info) {
		return Plan{}
	}
	requested := requestedForm{source: source, collection: !t.object(), watch: t.Watches(query)}
	form, ok := negotiate(c.Request, query, requested)
	if !ok {
		return Plan{}
	}
	plan := Plan{}
	if c.Method == http.MethodHead {
		plan = planHead(source)
	} else {
		plan = p.planQuery(source, t, query)
	}
	if plan.Action == Refuse && p.Semantics.OfUpstream {
		return Plan{} // which may refuse in other words, or not at all
	}
	plan.AnswerForm = form
	if w := plan.Watch; w != nil {
		plan.Encoding.Bookmarks = w.Bookmarks
		// no other watch is compressed (W-7, W-120)
		plan.Encoding.Gzip = form.Gzip && w.EndMark && source.GzipsWatchLists() && !c.WebSocket
		plan.Encoding.WebSocket, plan.Encoding.Chunked = c.WebSocket, c.Chunked && !c.WebSocket
	}
	return plan
}

// planQuery plans a request for a mirrored resource, in the order in which upstream looks at it
// (W-30).
func (p *Planner) planQuery(s *source.Source, t Target, query url.Values) Plan {
	timeout, _ := queryTimeout(query)
	hurried := timeout > 0 && timeout <= source.ArrivalTimeout+time.Second
	if t.object() {
		return planGet(s, t, query, hurried)
	}
	if query.Has("shardSelector") {
		return Plan{}
	}
	if oddLabels(query) {
		return Plan{}
	}
	o, err := decodeOptions(query, p.Semantics.watchLists())
	if err != nil {
		return refuse(s, err)
	}
	info := s.Resource().Info
	if !selectable(info, o.FieldSelector) {
		return Plan{}
	}
	if o.FieldSelector, err = selectName(o.FieldSelector, t.name); err != nil {
		return refuse(s, err)
	}
	c := newCollection(info, t, o)
	if t.Watches(query) {
		return p.planWatch(s, c)
	}
	return planList(s, c, hurried)
}

// Awaits reports that a request is to be sent again: memory serves such requests and cannot answer
// now, and upstream has another answer. That is a watch that begins with the most recent state, or
// has sendInitialEvents, where upstream refuses watch-lists. Where nothing can be proven for long,
// the refusal is better than none: clients list then.
func (p *Planner) Awaits(c Candidate, decided Plan) bool {
	if p.Semantics.OfUpstream || !p.Semantics.refusesWatchLists() || !c.target.Watches(c.query) {
		return false
	}
	if decided.Doubtful {
		return !decided.Source.Fresh.IsUnprovable()
	}
	return c.query.Has("sendInitialEvents") && (decided.Action != Upstream || p.Catalog.Soon(c.target.gvr))
}

// MostRecent reports that the plan is for a LIST that must not be older than the request.
func (p Plan) MostRecent() bool { return p.List != nil && p.Action == FromCacheProven }

// ShowsState reports that the answer shows a state of any age, which gets older while upstream is
// away. Events, the state at an exact version, and what is proven current do not.
func (p Plan) ShowsState() bool {
	switch {
	case p.Get != nil:
		return true
	case p.List != nil:
		return p.Action == FromCache && !p.List.Exact
	case p.Watch != nil:
		return p.Watch.Start == StateAny || p.Watch.Start == StateAtLeast
	}
	return false
}

// refuse plans the refusal of a request in upstream's words.
func refuse(s *source.Source, err error) Plan {
	return Plan{Action: Refuse, Source: s, Status: apistatus.Of(err)}
}

// refuseEarly plans the refusal of a request before upstream looks at the resource, so that nothing
// is said of that (W-4).
func refuseEarly(s *source.Source, err error) Plan {
	p := refuse(s, err)
	p.Early = true
	return p
}

// planGet plans a GET of one object (W-95). It looks at the resourceVersion and nothing else
// (W-34).
func planGet(s *source.Source, t Target, query url.Values, hurried bool) Plan {
	if QueryBool(query, "export") {
		return refuse(s, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported"))
	}
	rv, err := parseRV(query.Get("resourceVersion"))
	if err != nil {
		return refuse(s, err)
	}
	return Plan{Action: FromCache, Source: s, Get: &GetPlan{Key: t.key(), Name: t.name, RV: rv, Hurried: hurried}}
}

// planHead refuses a HEAD of a built-in resource, which has none, as upstream's router does. Custom
// resources have it, and there it passes through, as every other method does (W-23, W-173).
func planHead(s *source.Source) Plan {
	if !s.Resource().Info.Builtin {
		return Plan{}
	}
	return refuseEarly(s,
		apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false))
}
