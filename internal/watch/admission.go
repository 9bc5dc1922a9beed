package watch

import (
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth/reauth"
	"spillway/internal/cache"
	"spillway/internal/fanout"
	"spillway/internal/flowcontrol"
	"spillway/internal/object"
	"spillway/internal/plan"
)

// maxWatchDuration is longer than anything lasts, and short enough for moments to hold its end: a
// client may ask for up to 292 years.
const maxWatchDuration = 100 * 365 * 24 * time.Hour

// StreamOptions are what a stream is made of besides its plan.
type StreamOptions struct {
	// Owner is the user that the hub counts the stream for.
	Owner  fanout.Owner
	Client ClientInfo
	// Admit registers the stream with what reauthorises it; nil: nothing does.
	Admit func(reauth.ReviewedStream) *reauth.Lease
}

func (m *Manager) newStream(p plan.Plan, o StreamOptions) *Stream {
	st := &Stream{
		source: p.Source, start: p.Watch.Start, from: p.Watch.RV, timeout: min(p.Watch.Timeout, maxWatchDuration),
		encoding: p.Encoding, failure: p.Failure, wantsBookmarks: p.Watch.Bookmarks, wantsInitialEventsEnd: p.Watch.EndMark,
		admit: o.Admit, owner: o.Owner, client: o.Client,
	}
	st.deadline = now().after(st.timeout)
	st.liveSelector.Store(&p.Selector)
	st.begin(m)
	return st
}

// reserve reserves what a watch takes of the limits. release gives it back.
func (s *Stream) reserve(flow flowcontrol.Flow) *Refusal {
	var beyond *flowcontrol.Refusal
	if s.watchPermit, beyond = s.manager.opts.Limiter.AdmitLasting(flow); beyond != nil {
		return s.refuseLimited(beyond)
	}
	if costly := s.reserveSelector(flow); costly != nil {
		return s.refuseSelector(costly)
	}
	return nil
}

// reserveState reserves what the state takes that the watch begins with. A watch that waits for its
// state to be proven holds none of it.
func (s *Stream) reserveState(onDisconnect flowcontrol.OnDisconnect, flow flowcontrol.Flow) *Refusal {
	width := s.stateWidth()
	if width == 0 {
		return nil
	}
	starting, beyond := s.manager.opts.Limiter.AdmitList(onDisconnect, flow, width)
	if beyond != nil {
		return s.refuseLimited(beyond)
	}
	s.statePermit = &starting
	return nil
}

// refuseLimited refuses a watch that is beyond the limits.
func (s *Stream) refuseLimited(r *flowcontrol.Refusal) *Refusal {
	return &Refusal{apistatus.Limited(s.failure, s.manager.opts.Limiter.Closed(), r.RetryAfter)}
}

// reserveSelector counts the stream's selector.
func (s *Stream) reserveSelector(flow flowcontrol.Flow) (refusal *flowcontrol.Refusal) {
	claimed, refusal := s.manager.opts.Limiter.ClaimSelector(&s.selectorClaim, flow, s.source, s.selector(), s.encoding)
	s.liveSelector.Store(&claimed)
	return refusal
}

// release gives back what a stream holds. It is called when the stream has ended, or cannot begin.
func (s *Stream) release(reason EndReason) {
	s.Lifecycle.Stop(reason)
	s.closeCursor()
	s.releaseState()
	s.manager.opts.Limiter.ReleaseSelector(&s.selectorClaim)
	s.watchPermit.Release()
}

// releaseState gives back what the initial state takes.
func (s *Stream) releaseState() {
	if s.statePermit != nil {
		s.statePermit.Release()
		s.statePermit = nil
	}
}

// admitStream counts a stream in. It reports false while the server drains.
func (m *Manager) admitStream(st *Stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.draining {
		return false
	}
	m.mu.admitted++
	st.id = m.mu.admitted
	m.mu.streams[st] = struct{}{}
	m.active.Add(1)
	m.metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Inc()
	return true
}

// Serve delivers an open stream through out, to its end, which may come long after Serve has
// returned. connect connects out, and then calls one of the functions once: take, which delivers
// the stream, or lost, if there is no connection to be had any more.
func (s *Stream) Serve(out sink, connect func(take, lost func())) {
	s.served = true
	connect(func() {
		s.attach(out)
		s.deliver()
	}, func() {
		s.attach(out)
		s.countOut(EndAborted)
	})
}

// Abandon counts an open stream out that is not served after all. It does nothing to one that is.
func (s *Stream) Abandon() {
	if s.served {
		return
	}
	s.served = true
	s.release(EndAborted)
	s.manager.metrics.streams.WithLabelValues(s.resource(), plan.EncodingName(s.encoding)).Dec()
	s.manager.removeStream(s)
}

// attach gives the stream its sink.
func (s *Stream) attach(out sink) {
	m := s.manager
	m.mu.Lock()
	s.out = out
	m.mu.Unlock()
	if m.base.Err() != nil { // closed before this sink was known
		out.cut()
	}
}

// deliver delivers the stream. A panic ends that stream alone.
func (s *Stream) deliver() {
	s.cleanup = func(reason EndReason) { s.out.end(reason, s.countOut(reason)) }
	defer func() {
		if p := recover(); p != nil {
			s.manager.opts.Panicked(p)
			s.Cleanup(EndAborted)
		}
	}()
	if admit := s.admit; admit != nil {
		s.permit = admit(s)
		s.admit = nil
	}
	s.manager.deliver.deliver(s)
}

// countOut counts a stream out, and logs and counts why it ended. It reports whether the server
// drains.
func (s *Stream) countOut(reason EndReason) (draining bool) {
	m := s.manager
	s.release(reason)
	if s.permit != nil {
		s.permit.Release()
	}
	m.metrics.streams.WithLabelValues(s.resource(), plan.EncodingName(s.encoding)).Dec()
	m.metrics.ends.WithLabelValues(s.resource(), string(reason)).Inc()
	s.logEnd(m.log, reason)
	m.endStats.addEnd(s, reason)
	if s.recordEnd != nil {
		s.recordEnd()
	}
	return m.removeStream(s)
}

// removeStream forgets a stream, and reports whether the server drains.
func (m *Manager) removeStream(st *Stream) (draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.sent[st.resource()] += st.bytes.Load()
	delete(m.mu.streams, st)
	m.active.Done()
	return m.mu.draining
}

// logEnd logs how a stream ended: as a warning if its client was too slow, which is the only end
// that an operator may have to act on.
func (s *Stream) logEnd(log *zap.Logger, reason EndReason) {
	fields := []zap.Field{
		zap.String("verb", "watch"), zap.String("resource", s.resource()), zap.String("client", s.out.client()),
		zap.Int64("bytes", s.bytes.Load()),
	}
	if LogEviction(log, reason, fields...) {
		return
	}
	fields = append(fields, zap.String("reason", string(reason)))
	if reason.isRevoked() {
		log.Info("ended a watch that may not go on", fields...)
		return
	}
	log.Debug("watch ended", fields...)
}

// stateWidth is about what the state counts as that the watch begins with; 0 if there is none, or
// only a small one.
func (s *Stream) stateWidth() int64 {
	switch s.start {
	case plan.StateAny, plan.StateAtLeast, plan.StateConsistent:
	default:
		return 0
	}
	size := sizeOf(s.source.Resource().Snapshot(), s.selector())
	if !flowcontrol.IsLarge(size) {
		return 0
	}
	return flowcontrol.Width(size, s.encoding.Gzip)
}

// measuredObjectsLimit is how many objects a selector is matched with to estimate the selected part
// of a state.
const measuredObjectsLimit = 5000

// sizeOf is about how many bytes of JSON are selected of a state. It is exact unless the selector
// would have to be matched with more than measuredObjectsLimit objects.
func sizeOf(state *cache.Snapshot, sel object.Selector) int64 {
	switch {
	case state == nil:
		return 0
	case !flowcontrol.IsLarge(state.Bytes), sel.ScopeOnly() && sel.Namespace == "" && sel.Name == "":
		return state.Bytes
	}
	scope := sel // where they are looked up
	everywhere := sel.Namespace == "" && sel.Name == "" && !state.HasIndexFor(sel)
	if !state.HasIndexFor(sel) {
		scope = object.NewSelector(sel.Namespace, sel.Name, nil, nil)
	}
	var asked, selected, total int64
	n := 0
	state.Scan(scope, "", func(o *object.Object) bool {
		size := int64(o.Size())
		total += size
		if n++; n <= measuredObjectsLimit {
			asked += size
			if sel.Matches(o) {
				selected += size
			}
		}
		return n <= measuredObjectsLimit || !everywhere
	})
	switch {
	case n <= measuredObjectsLimit:
		return selected
	case everywhere:
		total = state.Bytes
	}
	return int64(float64(selected) * float64(total) / float64(asked))
}

// statusSelectors is the answer to a watch whose selector would make its user's too many.
func statusSelectors(sel object.Selector, most int64, retryAfter int) *metav1.Status {
	message := fmt.Sprintf("the selectors of this user's watches would have more than %d terms with this one, which "+
		"counts %d: "+
		"select less in each, let watches share a selector, or have --max-selector-terms-per-user raised", most, sel.Weight())
	return apistatus.New(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message,
		&metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}) // #nosec G115 -- some seconds
}

// refuseSelector refuses a watch whose selector is too much.
func (s *Stream) refuseSelector(r *flowcontrol.Refusal) *Refusal {
	l := s.manager.opts.Limiter
	if l.Closed() {
		return s.refuseLimited(r)
	}
	return s.refuse(statusSelectors(s.selector(), l.SelectorShare(), int(r.RetryAfter/time.Second)))
}
