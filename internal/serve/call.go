package serve

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// handle answers one request, and sees to it that it is on record and traced if that is wanted.
func (s *Server) handle(c call, front Front) {
	t := s.tracing()
	if t != nil {
		defer t.over()
		c = tracedCall{c, t}
	}
	if s.opts.Audit == nil {
		s.respond(c, front, nil, t)
		return
	}
	r := s.recording(c)
	defer r.over()
	s.respond(recorded{c, r}, front, r, t)
}

// respond answers one request: here if the plan says so and still can, else from upstream. r is its
// record, t its trace.
func (s *Server) respond(c call, front Front, r *record, t *trace) {
	if front.Guard != nil && !front.Guard.Admit(c, c.Guarded()) {
		return
	}
	came, request := time.Now(), c.PlanRequest()
	if s.ready(c, request) || s.turnAway(c, request) {
		return
	}
	var candidate plan.Candidate
	var ok bool
	s.readers.read(request.RawQuery, func() { candidate, ok = s.planner.Consider(request) })
	v, refusal := s.visit(c, request, ok, front)
	v.came, v.flow, v.agent, v.trace = came, flowOf(c, v, front), request.UserAgent, t
	if v.flow.User != "" { // also of a request that passes through, by a token that was reviewed lately
		c.Proven()
	}
	r.of(v, refusal != nil)
	t.of(c, v.who)
	if refusal != nil {
		s.refuseVisitor(c, request, v, refusal)
		return
	}
	if v.busy {
		s.sendAway(c)
		return
	}
	var p plan.Plan
	if ok && v.admitted { // not before: to plan is to have it mirrored
		s.readers.read(request.RawQuery, func() { p = s.planner.Decide(candidate) })
	}
	switch {
	case p.Action != plan.Upstream && s.answer(c, &p, v):
	case ok && v.admitted && s.planner.Awaits(candidate, p):
		apistatus.WriteAs(c, failureFormOf(request, request.Query().Get("pretty")),
			apistatus.NotReady(apistatus.RetryAfter()))
	case p.Doubtful && s.turnAwayUnproven(c, p.Source):
	case p.MostRecent():
		s.passRecent(c, request, p, v)
	case p.List != nil:
		s.passList(c, v, passthrough.AnswerHooks{})
	default:
		s.pass(c, v, passthrough.AnswerHooks{})
	}
}

// answer answers here, or reports false if upstream must.
func (s *Server) answer(c call, p *plan.Plan, v requester) bool {
	s.metrics.introduce(p.Source)
	r := p.Source.Resource()
	if p.MostRecent() && !r.Ready() {
		return false // upstream need not wait for our first state
	}
	if p.Get == nil && p.Action != plan.Refuse && !s.awaitReady(r) && s.opts.Catalog.Find(r.Info.GVR) == p.Source &&
		!r.Retired() {
		s.metrics.notReady.WithLabelValues(r.Info.String()).Inc()
		apistatus.WriteAs(c, p.Failure, apistatus.NotReady(apistatus.RetryAfter()))
		return true
	}
	switch {
	case r.Retired() || !r.Ready(): // given up meanwhile: whatever upstream says now, it does not say here
		return false
	case p.Action == plan.Refuse:
		s.refuse(c, answering{Plan: *p}, p.Status)
		return true
	}
	stale, ok := s.stale(*p, v.flow)
	a := answering{*p, stale}
	switch {
	case !ok:
		return false
	case p.Get != nil:
		return s.get(c, a)
	case p.List != nil:
		return s.list(c, a, v)
	}
	return s.watch(c, p, a, v)
}

// watch answers a watch here, or reports false if upstream must. p is then doubtful if the cache
// could not be proven.
func (s *Server) watch(c call, p *plan.Plan, a answering, v requester) bool {
	st, opening := s.watches.Open(c, a.Plan,
		watch.StreamOptions{Owner: ownerOf(v.flow), Client: v.client(), Admit: v.grant.permit()}, v.flow)
	switch opening {
	case watch.Opened:
		defer s.watches.Dismiss(st) // if it runs into a bug before a deliverer takes it
		c.Watch(st, a.headers)
	case watch.Unproven:
		*p = plan.Plan{Source: p.Source, Doubtful: true}
		return false
	}
	return true
}

// turnAwayUnproven refuses a watch that upstream would have to serve because the cache cannot be
// proven, beyond a rate. It reports false if the watch may pass through.
func (s *Server) turnAwayUnproven(c call, of *source.Source) bool {
	if s.doubts.Allow() {
		return false
	}
	s.metrics.unproven.WithLabelValues(of.Resource().Info.String()).Inc()
	s.sendAway(c)
	return true
}

// readyWait is how long a request is held while a resource's first state is on its way (design
// D14).
const readyWait = 3 * time.Second

// awaitReady waits for the resource's first state, unless it has been given up.
func (s *Server) awaitReady(r *cache.Resource) bool {
	if r.Ready() {
		return true
	}
	ctx, cancel := context.WithTimeout(s.base, readyWait)
	defer cancel()
	for {
		changed := r.Changed()
		if r.Ready() || r.Retired() {
			return r.Ready()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// longQueryLimit bound how many long queries are read at the same time: a selector of a megabyte
// keeps a processor busy for a tenth of a second, and is read before it is known whether it is too
// much.
type longQueryLimit chan struct{}

// longQueryBytes is how many bytes of query are long.
const longQueryBytes = 16 << 10

func newReaders() longQueryLimit { return make(longQueryLimit, max(1, runtime.GOMAXPROCS(0)/2)) }

// read calls f, in its turn if the query is long.
func (r longQueryLimit) read(query string, f func()) {
	if len(query) > longQueryBytes {
		r <- struct{}{}
		defer func() { <-r }()
	}
	f()
}

// ReadinessPath is where the main listeners say whether this proxy is ready, without a question to
// the apiserver. /readyz there is the apiserver's own and passes through. No path of a
// kube-apiserver begins with /spillway.
const ReadinessPath = "/spillway/readyz"

// ready answers a probe of this proxy's own readiness, and reports whether the request is one.
// Probes bring no credentials: the answer is yes or no, and why not is for --metrics-listen.
func (s *Server) ready(c call, r plan.Request) bool {
	if s.opts.Ready == nil || r.Path != ReadinessPath || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	apistatus.SetCommonHeaders(c, "text/plain; charset=utf-8")
	c.SetHeader("X-Content-Type-Options", "nosniff")
	if s.opts.Ready() != nil {
		c.Send(http.StatusInternalServerError, []byte("not ready\n"))
		return true
	}
	c.Send(http.StatusOK, []byte("ok"))
	return true
}

// turnAway answers while upstream has been away since the start, so that its state is not known; it
// reports false once upstream has answered.
//
// A watch receives what upstream sends while it fills its watch cache: of all answers, 429 alone
// makes client-go's informers retry the same watch, as without an answer. After anything else they
// list anew, all at once, as soon as they can. All other requests receive what passing them on
// would yield.
func (s *Server) turnAway(c call, r plan.Request) bool {
	if s.opts.Away == nil {
		return false
	}
	why := s.opts.Away()
	if why == nil {
		return false
	}
	status := apistatus.Unavailable("upstream apiserver is unavailable: " + passthrough.FailureKind(why))
	query := r.Query()
	if t, ok := plan.ParseTarget(r.Path); ok && t.Watches(query) {
		status = apistatus.NotReady(apistatus.RetryAfter())
	}
	apistatus.WriteAs(c, failureFormOf(r, query.Get("pretty")), status)
	return true
}

// failureFormOf is the form of a refusal that only we can word.
func failureFormOf(r plan.Request, pretty string) apistatus.StatusFormat {
	if form, ok := plan.NegotiateFailure(r.Accept, plan.WantsPretty(pretty, r.UserAgent)); ok {
		return form
	}
	return apistatus.StatusFormat{Indented: true} // as upstream does for want of a form
}

// flowOf is the flow that the limits count a request for: its user, if it is known already or was
// authenticated lately, since no review is requested for this; else its address (design D13). What
// a request only claims to be counts for nothing, or every made-up token would be a user with a
// share.
func flowOf(c call, v requester, front Front) flowcontrol.Flow {
	who := v.who
	switch {
	case v.grant != nil:
		who = v.grant.result.Identity
	case who == nil && !v.admitted && front.Access != nil:
		who = front.Access.Authenticator.Recall(auth.AuthnRequest{Header: c.Headers(isAuthorization)})
	}
	if who != nil {
		return flowcontrol.UserFlow(who.Name())
	}
	return flowcontrol.AddrFlow(c.Address())
}

func isAuthorization(key string) bool { return key == "Authorization" }

// ownerOf is the user that the hub counts a watch for.
func ownerOf(flow flowcontrol.Flow) fanout.Owner {
	if flow.User != "" {
		return fanout.Owner("user " + flow.User)
	}
	return fanout.Owner("address " + flow.Addr.String())
}

const (
	// awayText and staleText are the Warning of answers from a state that is not kept current:
	// since the apiserver does not answer, or for another reason, with the resource in it. They do
	// not change, since clients show each text once; how old the state is, is in the header Age.
	awayText  = `299 - "the apiserver is out of the proxy's reach: this is the last state known, see the header Age"`
	staleText = `299 - "the proxy's copy of %s is not kept current: this is the last state known, see the header Age"`
	// warningInterval is how often one flow is warned. client-go logs every warning that it gets, and
	// an informer lists in each attempt of its own, so that an outage would fill logs with one line.
	// It is counted by flow, not by connection: over HTTP/1.1 a client may well open a connection for
	// each request.
	warningInterval = time.Minute
	// warnedUsersLimit is how many flows are remembered. A flow beyond them gets no warning, but the
	// header Age.
	warnedUsersLimit = 10_000
)

// staleness is what an answer says of the age of its state (design D15). The zero value says
// nothing: the state is kept current.
type staleness struct {
	age  time.Duration
	away bool // the apiserver does not answer
	warn bool
}

// answering is a plan that is carried out: it is known what the answer says of the age of its
// state.
type answering struct {
	plan.Plan
	stale staleness
}

// headers sets Age, and Warning from what the source has to say of the resource and from this.
func (p answering) headers(set func(key, value string)) {
	var warnings []string
	if text := p.Source.WarningText(); text != "" {
		warnings = append(warnings, text)
	}
	if p.stale.age > 0 {
		set("Age", strconv.FormatInt(int64(p.stale.age/time.Second), 10))
	}
	switch {
	case p.stale.warn && p.stale.away:
		warnings = append(warnings, awayText)
	case p.stale.warn:
		warnings = append(warnings, fmt.Sprintf(staleText, p.Source.Resource().Info))
	}
	if len(warnings) > 0 {
		set("Warning", strings.Join(warnings, ", "))
	}
}

// stale finds out how old the state behind a plan is. It reports false if it is too old to be
// shown: upstream, or the failure to reach it, answers then.
func (s *Server) stale(p plan.Plan, flow flowcontrol.Flow) (staleness, bool) {
	if p.Source.Age == nil || !p.ShowsState() {
		return staleness{}, true
	}
	age, away := p.Source.Age()
	if age <= 0 {
		return staleness{}, true
	}
	if age > s.opts.MaxStaleness {
		s.metrics.tooStale.WithLabelValues(p.Source.Resource().Info.String()).Inc()
		return staleness{}, false
	}
	s.metrics.stale.WithLabelValues(p.Source.Resource().Info.String()).Inc()
	return staleness{age, away, s.warned.due(flow, time.Now())}, true
}

// lastWarnings remembers which flows were warned lately.
type lastWarnings struct {
	mu   sync.Mutex
	last map[flowcontrol.Flow]time.Time
}

// due reports whether a flow is to be warned now, and takes it that it is.
func (w *lastWarnings) due(flow flowcontrol.Flow, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[flow]; ok && now.Sub(last) < warningInterval {
		return false
	}
	if len(w.last) >= warnedUsersLimit {
		for f, last := range w.last {
			if now.Sub(last) >= warningInterval {
				delete(w.last, f)
			}
		}
		if len(w.last) >= warnedUsersLimit {
			return false
		}
	}
	if w.last == nil {
		w.last = map[flowcontrol.Flow]time.Time{}
	}
	w.last[flow] = now
	return true
}
