package plan

import (
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/apistatus"
	"spillway/internal/source"
)

// Planner decides how requests are answered. Its methods wait for nothing and may be called from
// any goroutine.
type Planner struct {
	Catalog source.Catalog
	// WatchTimeout chooses how long a watch lasts that does not say (W-29).
	WatchTimeout func() time.Duration
	// Semantics are whose answers requests get where versions of Kubernetes differ.
	Semantics Semantics
}

// Semantics are whose answers requests get where versions of Kubernetes differ. The zero value is
// the newest version's, with an upstream of that version.
type Semantics struct {
	// OfUpstream: those of upstream's version and gates, refusals included. Otherwise they are the
	// newest version's, whatever upstream's are, so that a request always gets the same answer.
	OfUpstream bool
	// RefusesWatchLists reports that upstream refuses watch-lists; nil: it serves them.
	RefusesWatchLists func() bool
}

func (s Semantics) refusesWatchLists() bool {
	return s.RefusesWatchLists != nil && s.RefusesWatchLists()
}

// servesWatchLists reports whether watch-lists are served (W-101).
func (s Semantics) servesWatchLists() bool { return !s.OfUpstream || !s.refusesWatchLists() }

// Candidate is a request that may be answered from memory, as far as that is known without its
// sender.
type Candidate struct {
	Request
	target Target
	query  url.Values
}

// Consider reports whether a request may be answered from memory, if its sender may read what it
// requests. All others go upstream, whatever their senders. It starts nothing: a client without
// rights causes no mirror.
func (p *Planner) Consider(r Request) (Candidate, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !r.Plain || IsOverfull(r.RawQuery) {
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
	if t.isObject() && c.query.Get("resourceVersion") == "" {
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
	if source == nil || !t.hasScopeOf(source.Resource().Info) {
		return Plan{}
	}
	requested := requestedForm{source: source, isCollection: !t.isObject(), isWatch: t.Watches(query)}
	form, ok := negotiate(c.Request, query, requested)
	if !ok {
		return Plan{}
	}
	var plan Plan
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
		// No watch but a watch-list is compressed (W-7, W-120).
		plan.Encoding.Gzip = form.Gzip && w.EndMark && source.GzipsWatchLists() && !c.WebSocket
		plan.Encoding.WebSocket, plan.Encoding.Chunked = c.WebSocket, c.Chunked && !c.WebSocket
	}
	return plan
}

// planQuery plans a request for a mirrored resource, in the order in which upstream looks at it
// (W-30).
func (p *Planner) planQuery(s *source.Source, t Target, query url.Values) Plan {
	timeout, _ := queryTimeout(query)
	isHurried := timeout > 0 && timeout <= source.ArrivalTimeout+time.Second
	if t.isObject() {
		return planGet(s, t, query, isHurried)
	}
	if query.Has("shardSelector") || hasOddSet(query["labelSelector"]) {
		return Plan{}
	}
	o, err := decodeOptions(query, p.Semantics.servesWatchLists())
	if err != nil {
		return refuse(s, err)
	}
	info := s.Resource().Info
	if !hasFields(info, o.FieldSelector) {
		return Plan{}
	}
	if o.FieldSelector, err = selectName(o.FieldSelector, t.name); err != nil {
		return refuse(s, err)
	}
	c := newCollection(info, t, o)
	if t.Watches(query) {
		return p.planWatch(s, c)
	}
	return planList(s, c, isHurried)
}

// Awaits reports that the client must send a request again, because memory cannot answer it now and
// upstream would answer differently: a watch that begins with the most recent state, or has
// sendInitialEvents, while upstream refuses watch-lists. If nothing can be proven for long, such a
// watch passes through: after upstream's refusal clients list.
func (p *Planner) Awaits(c Candidate, decided Plan) bool {
	if p.Semantics.OfUpstream || !p.Semantics.refusesWatchLists() || !c.target.Watches(c.query) {
		return false
	}
	if decided.Doubtful {
		return !decided.Source.Fresh.IsUnprovable()
	}
	return c.query.Has("sendInitialEvents") && (decided.Action != Upstream || p.Catalog.Soon(c.target.gvr))
}

// refuse plans the refusal of a request in upstream's words.
func refuse(s *source.Source, err error) Plan {
	return Plan{Action: Refuse, Source: s, Status: apistatus.Of(err)}
}

// refuseEarly plans a refusal that upstream gives before it looks at the resource, and so without a
// warning (W-4).
func refuseEarly(s *source.Source, err error) Plan {
	p := refuse(s, err)
	p.Early = true
	return p
}

// planGet plans a GET of one object (W-95). It looks at the resourceVersion and nothing else
// (W-34).
func planGet(s *source.Source, t Target, query url.Values, isHurried bool) Plan {
	if QueryBool(query, "export") {
		return refuse(s, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported"))
	}
	rv, err := parseRV(query.Get("resourceVersion"))
	if err != nil {
		return refuse(s, err)
	}
	return Plan{Action: FromCache, Source: s, Get: &GetPlan{Key: t.key(), Name: t.name, RV: rv, Hurried: isHurried}}
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
