package serve

import (
	"context"
	"runtime"
	"time"

	"spillway/internal/apistatus"
	"spillway/internal/cache"
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
	var isCandidate bool
	s.longQueries.run(r.parsed.RawQuery, func() { candidate, isCandidate = s.planner.Consider(r.parsed) })
	refusal := s.identify(r, isCandidate)
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
	case !isCandidate || !r.isAdmitted(): // a plan has the resource mirrored
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
	if r.awaitsState() && !r.server.awaitReady(from) && r.isMirrored() {
		r.server.metrics.notReady.WithLabelValues(r.resource()).Inc()
		return answerOutcome(apistatus.FailureAs(r.plan.Failure, apistatus.NotReady(apistatus.RetryAfter())))
	}
	switch {
	case from.IsClosed() || !from.IsReady(): // it was given up, or is not here yet
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

// awaitsState reports that the request waits for the resource's first state. A GET without one
// passes through.
func (r *request) awaitsState() bool { return r.plan.Get == nil && r.plan.Action != plan.Refuse }

// isMirrored reports that the resource of the plan has not been given up meanwhile.
func (r *request) isMirrored() bool {
	from := r.plan.Source.Resource()
	return r.server.opts.Catalog.Find(from.Info.GVR) == r.plan.Source && !from.IsClosed()
}

// openWatch opens a watch.
func (r *request) openWatch() outcome {
	st, refusal := r.server.watches.Open(r.OnDisconnect, r.plan,
		watch.StreamOptions{Owner: ownerOf(r.flow), Client: r.clientInfo(), Admit: r.grant.admitStream()}, r.flow)
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

// longQueryLimit bounds how many long queries are read at the same time: a selector of a megabyte
// keeps a processor busy for a tenth of a second, and is read before its weight is known.
type longQueryLimit chan struct{}

// longQueryBytes is how many bytes of query are long.
const longQueryBytes = 16 << 10

func newLongQueryLimit() longQueryLimit { return make(longQueryLimit, max(1, runtime.GOMAXPROCS(0)/2)) }

// run calls f, in its turn if the query is long.
func (l longQueryLimit) run(query string, f func()) {
	if len(query) > longQueryBytes {
		l <- struct{}{}
		defer func() { <-l }()
	}
	f()
}
