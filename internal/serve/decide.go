package serve

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/passthrough"
	"spillway/internal/plan"
	"spillway/internal/watch"
)

// handle answers one request.
func (s *Server) handle(c call, listener ListenerConfig) {
	r := s.newRequest(c, listener)
	defer r.close()
	r.complete(s.decide(r))
}

// decide settles what becomes of a request: it is answered here if the plan says so and still can,
// else upstream answers.
func (s *Server) decide(r *request) outcome {
	if early := s.answerEarly(r); early != nil {
		return answerOutcome(early)
	}
	var candidate plan.Candidate
	var ok bool
	s.longQueries.run(r.parsed.RawQuery, func() { candidate, ok = s.planner.Consider(r.parsed) })
	refusal := s.identify(r, ok)
	r.canPass = refusal == nil || r.access == verdictDenied
	r.flow = flowOf(r)
	if r.flow.User != "" { // also of a request that passes through, by a token that was reviewed lately
		r.MarkProven()
	}
	r.trace.begin()
	switch {
	case refusal != nil:
		return r.refuseRequester(refusal)
	case r.access == verdictBusy:
		return refuseBusy()
	case !ok || !r.isAdmitted(): // to plan is to have it mirrored
		return r.passThrough()
	}
	s.longQueries.run(r.parsed.RawQuery, func() { r.plan = s.planner.Decide(candidate) })
	o := r.fromMemory()
	switch {
	case o != unsettled:
		return o
	case s.planner.Awaits(candidate, r.plan):
		return answerOutcome(apistatus.FailureAs(r.failureFormat(), apistatus.NotReady(apistatus.RetryAfter())))
	}
	return r.passThroughPlanned()
}

// answerEarly is the answer to a request that does not depend on its sender; nil: it has none.
func (s *Server) answerEarly(r *request) *apistatus.Answer {
	if g := r.listener.Guard; g != nil {
		if status := g.Refusal(r.GuardedRequest()); status != nil {
			a := apistatus.Failure(status)
			a.HangUp = true
			return a
		}
	}
	if s.isReadinessProbe(r.parsed) {
		return s.readinessAnswer()
	}
	return s.unavailableAnswer(r)
}

// fromMemory is the answer from memory, or unsettled: upstream has to answer. The plan of a watch
// that could not be proven is doubtful from then on.
func (r *request) fromMemory() outcome {
	if r.plan.Action == plan.Upstream {
		return unsettled
	}
	r.server.metrics.introduce(r.plan.Source)
	from := r.plan.Source.Resource()
	if r.plan.MostRecent() && !from.IsReady() {
		return unsettled // upstream need not wait for our first state
	}
	if r.plan.Get == nil && r.plan.Action != plan.Refuse && !r.server.awaitReady(from) &&
		r.server.opts.Catalog.Find(from.Info.GVR) == r.plan.Source && !from.IsClosed() {
		r.server.metrics.notReady.WithLabelValues(r.resource()).Inc()
		return answerOutcome(apistatus.FailureAs(r.plan.Failure, apistatus.NotReady(apistatus.RetryAfter())))
	}
	switch {
	case from.IsClosed() || !from.IsReady(): // given up meanwhile: whatever upstream says now, it does not say here
		return unsettled
	case r.plan.Action == plan.Refuse:
		return r.refuse(r.plan.Status)
	case !r.checkAge():
		return unsettled
	case r.plan.Get != nil:
		return r.answerGet()
	case r.plan.List != nil:
		return r.answerList()
	}
	return r.openWatch()
}

// openWatch opens a watch.
func (r *request) openWatch() outcome {
	st, refusal := r.server.watches.Open(r.OnDisconnect, r.plan,
		watch.StreamOptions{Owner: ownerOf(r.flow), Client: r.clientInfo(), Admit: r.grant.permit()}, r.flow)
	switch {
	case refusal == nil:
		return outcome{stream: st}
	case refusal.Answer == nil:
		r.plan = plan.Plan{Source: r.plan.Source, Doubtful: true}
		return unsettled
	}
	return answerOutcome(refusal.Answer)
}

// firstStateTimeout is how long a request is held while a resource's first state is on its way
// (design D14).
const firstStateTimeout = 3 * time.Second

// awaitReady waits for the resource's first state, unless it has been given up.
func (s *Server) awaitReady(r *cache.Resource) bool {
	if r.IsReady() {
		return true
	}
	ctx, cancel := context.WithTimeout(s.base, firstStateTimeout)
	defer cancel()
	for {
		changed := r.Changed()
		if r.IsReady() || r.IsClosed() {
			return r.IsReady()
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

func newLongQueryLimit() longQueryLimit { return make(longQueryLimit, max(1, runtime.GOMAXPROCS(0)/2)) }

// run calls f, in its turn if the query is long.
func (r longQueryLimit) run(query string, f func()) {
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

// isReadinessProbe reports that a request asks for this proxy's own readiness.
func (s *Server) isReadinessProbe(r plan.Request) bool {
	return s.opts.Ready != nil && r.Path == ReadinessPath && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// readinessAnswer answers a probe of this proxy's own readiness. Probes bring no credentials: the
// answer is yes or no, and why not is for --metrics-listen.
func (s *Server) readinessAnswer() *apistatus.Answer {
	if s.opts.Ready() != nil {
		return apistatus.Text(http.StatusInternalServerError, "not ready\n")
	}
	return apistatus.Text(http.StatusOK, "ok")
}

// unavailableAnswer is the answer while upstream has been unreachable since the start, so that its
// state is not known; nil once upstream has answered.
//
// A watch receives what upstream sends while it fills its watch cache: of all answers, 429 alone
// makes client-go's informers retry the same watch, as without an answer. After anything else they
// list again, all at once, as soon as they can. All other requests receive what passing them on
// would yield.
func (s *Server) unavailableAnswer(r *request) *apistatus.Answer {
	if s.opts.Unreachable == nil {
		return nil
	}
	why := s.opts.Unreachable()
	if why == nil {
		return nil
	}
	status := apistatus.Unavailable("upstream apiserver is unavailable: " + passthrough.FailureKind(why))
	if t, ok := plan.ParseTarget(r.parsed.Path); ok && t.Watches(r.parsed.Query()) {
		status = apistatus.NotReady(apistatus.RetryAfter())
	}
	return apistatus.FailureAs(r.failureFormat(), status)
}

// flowOf is the flow that the limits count a request for: its user, if it is known already or was
// authenticated lately, since no review is requested for this; else its address (design D13). What
// a request only claims to be counts for nothing, or every made-up token would be a user with a
// share.
func flowOf(r *request) flowcontrol.Flow {
	who := r.identity
	switch {
	case r.grant != nil:
		who = r.grant.result.Identity
	case who == nil && !r.isAdmitted() && r.listener.Access != nil:
		who = r.listener.Access.Authenticator.RecallIdentity(auth.AuthnRequest{Header: r.Headers(isAuthorization)})
	}
	if who != nil {
		return flowcontrol.UserFlow(who.Name())
	}
	return flowcontrol.AddrFlow(r.Address())
}

func isAuthorization(key string) bool { return key == "Authorization" }

// ownerOf is the user that the hub counts a watch for.
func ownerOf(flow flowcontrol.Flow) fanout.Owner {
	if flow.User != "" {
		return fanout.Owner("user " + flow.User)
	}
	return fanout.Owner("address " + flow.Addr.String())
}
