package serve

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/cache"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/source"
	"spillway/internal/watch"
)

// call is one request and the place for its answer, on one of the protocols. The server decides
// what becomes of a request once, for all protocols; a call knows how to read it and how to carry
// that out.
type call interface {
	apistatus.Responder
	// PlanRequest is what a plan looks at.
	PlanRequest() plan.Request
	// Guarded is what a guard looks at.
	Guarded() passthrough.PlainRequest
	// Headers are those of the request that are wanted, by their canonical keys.
	Headers(wanted func(key string) bool) http.Header
	// Certificates are those that the client sent, its own first; they are not verified.
	Certificates() []*x509.Certificate
	// Proven notes that the sender of the request is known, or that the listener does not ask.
	Proven()
	// Address is the client's IP address; none for a unix socket.
	Address() netip.Addr
	// Departs tells of the client's departure, for those that wait before they answer.
	Departs(gone func()) (stop func())
	// Watch serves a stream that was admitted to its end, or has it served. headers sets what the head
	// of the answer says of the resource.
	Watch(st *watch.Stream, headers watch.HeadersFunc)
	// Forward passes the request through, and returns when the answer has begun or later. The
	// limits count it for flow; as is its identity, if upstream has to know it; h observes the
	// answer.
	Forward(flow flowcontrol.Flow, as *auth.Impersonation, h passthrough.AnswerHooks)
}

// handle answers one request, and sees to it that it is on record and traced if that is wanted.
func (s *Server) handle(c call, front Front) {
	t := s.tracing()
	if t != nil {
		defer t.over()
		c = traced{c, t}
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
	case p.Action != plan.Upstream && s.answer(c, p, v):
	case p.Doubtful && !s.doubts.Allow():
		s.metrics.unproven.WithLabelValues(p.Source.Resource().Info.String()).Inc()
		s.sendAway(c)
	case p.MostRecent():
		s.passRecent(c, request, p, v)
	case p.List != nil:
		s.passList(c, v, passthrough.AnswerHooks{})
	default:
		s.pass(c, v, passthrough.AnswerHooks{})
	}
}

// answer answers here, or reports false if upstream must.
func (s *Server) answer(c call, p plan.Plan, v visitor) bool {
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
		s.refuse(c, answering{Plan: p}, p.Status)
		return true
	}
	stale, ok := s.stale(p, v.flow)
	a := answering{p, stale}
	switch {
	case !ok:
		return false
	case p.Get != nil:
		return s.get(c, a)
	case p.List != nil:
		return s.list(c, a, v)
	case p.Watch.Start == plan.EventsFromNewest && !s.fromNewest(p):
		return false
	}
	st := s.watches.NewStream(p, watch.StreamOptions{Owner: ownerOf(v.flow), Client: v.client(), Admit: v.grant.permit()})
	if s.watches.Begin(c, st, v.flow) && s.watches.ReachBack(c, st) {
		if !s.watches.Admit(st) {
			apistatus.WriteAs(c, p.Failure, apistatus.ShuttingDown())
			return true
		}
		defer s.watches.Dismiss(st) // if it runs into a bug before a deliverer takes it
		c.Watch(st, a.headers)
	}
	return true
}

// fromNewest finds out what upstream's present is, where a watch is to begin: what the client does
// once it has the head of the answer is an event that it must see. It reports false if upstream
// does not say. p is a copy, but p.Watch points to the caller's WatchPlan: fromNewest sets its RV
// and Start.
func (s *Server) fromNewest(p plan.Plan) bool {
	ctx, cancel := s.within(source.ArrivalTimeout)
	defer cancel()
	rv, err := p.Source.Fresh.Newest(ctx)
	if err != nil {
		return false
	}
	p.Watch.RV, p.Watch.Start = rv, plan.EventsFrom
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

// within is a context for a short wait that also ends with the server.
func (s *Server) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.base, d)
}
