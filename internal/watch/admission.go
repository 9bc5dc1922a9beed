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
	Admit func(reauth.ReviewedStream) *reauth.Permit
}

func (m *Manager) newStream(p plan.Plan, o StreamOptions) *Stream {
	st := &Stream{
		source: p.Source, start: p.Watch.Start, from: p.Watch.RV, timeout: min(p.Watch.Timeout, maxWatchDuration),
		encoding: p.Encoding, failure: p.Failure, marks: p.Watch.Bookmarks, endMark: p.Watch.EndMark,
		admit: o.Admit, owner: o.Owner, client: o.Client,
	}
	st.deadline = now().after(st.timeout)
	st.selects.Store(&p.Selector)
	st.begin(m)
	return st
}

// reserve reserves what a watch takes of the limits. release gives it back.
func (st *Stream) reserve(flow flowcontrol.Flow) *Refusal {
	var beyond *flowcontrol.Refusal
	if st.lasting, beyond = st.manager.opts.Limiter.AdmitLasting(flow); beyond != nil {
		return st.refuseLimited(beyond)
	}
	if costly := st.choose(flow); costly != nil {
		return st.refuseSelector(costly)
	}
	return nil
}

// reserveState reserves what the state takes that the watch begins with. A watch that waits for its
// state to be proven holds none of it.
func (st *Stream) reserveState(departs flowcontrol.OnDisconnect, flow flowcontrol.Flow) *Refusal {
	width := st.stateWidth()
	if width == 0 {
		return nil
	}
	starting, beyond := st.manager.opts.Limiter.AdmitList(departs, flow, width)
	if beyond != nil {
		return st.refuseLimited(beyond)
	}
	st.starting = &starting
	return nil
}

// refuseLimited refuses a watch that is beyond the limits.
func (st *Stream) refuseLimited(r *flowcontrol.Refusal) *Refusal {
	return &Refusal{apistatus.Limited(st.failure, st.manager.opts.Limiter.Closed(), r.RetryAfter)}
}

// choose counts the stream's selector.
func (st *Stream) choose(flow flowcontrol.Flow) (refusal *flowcontrol.Refusal) {
	claimed, refusal := st.manager.opts.Limiter.ClaimSelector(&st.selected, flow, st.source, st.selector(), st.encoding)
	st.selects.Store(&claimed)
	return refusal
}

// release gives back what a stream holds. It is called when the stream has ended, or cannot begin.
func (st *Stream) release(reason EndReason) {
	st.Lifecycle.Stop(reason)
	st.closeCursor()
	st.releaseStarting()
	st.manager.opts.Limiter.ReleaseSelector(&st.selected)
	st.lasting.Release()
}

// releaseStarting gives back what the initial state takes.
func (st *Stream) releaseStarting() {
	if st.starting != nil {
		st.starting.Release()
		st.starting = nil
	}
}

// admit counts a stream in. It reports false while the server drains.
func (m *Manager) admit(st *Stream) bool {
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
func (st *Stream) Serve(out sink, connect func(take, lost func())) {
	st.served = true
	connect(func() {
		st.attach(out)
		st.deliver()
	}, func() {
		st.attach(out)
		st.countOut(EndAborted)
	})
}

// Abandon counts an open stream out that is not served after all. It does nothing to one that is.
func (st *Stream) Abandon() {
	if st.served {
		return
	}
	st.served = true
	st.release(EndAborted)
	st.manager.metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Dec()
	st.manager.remove(st)
}

// attach gives the stream its sink.
func (st *Stream) attach(out sink) {
	m := st.manager
	m.mu.Lock()
	st.out = out
	m.mu.Unlock()
	if m.base.Err() != nil { // closed before this sink was known
		out.cut()
	}
}

// deliver delivers the stream. A panic ends that stream alone.
func (st *Stream) deliver() {
	st.cleanup = func(reason EndReason) { st.out.end(reason, st.countOut(reason)) }
	defer func() {
		if p := recover(); p != nil {
			st.manager.opts.Panicked(p)
			st.Cleanup(EndAborted)
		}
	}()
	if admit := st.admit; admit != nil {
		st.permit = admit(st)
		st.admit = nil
	}
	st.manager.deliver.deliver(st)
}

// countOut counts a stream out, and logs and counts why it ended. It reports whether the server
// drains.
func (st *Stream) countOut(reason EndReason) (draining bool) {
	m := st.manager
	st.release(reason)
	if st.permit != nil {
		st.permit.Release()
	}
	m.metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Dec()
	m.metrics.ends.WithLabelValues(st.resource(), string(reason)).Inc()
	st.logEnd(m.log, reason)
	m.ended.note(st, reason)
	if st.recordEnd != nil {
		st.recordEnd()
	}
	return m.remove(st)
}

// remove forgets a stream, and reports whether the server drains.
func (m *Manager) remove(st *Stream) (draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.sent[st.resource()] += st.bytes.Load()
	delete(m.mu.streams, st)
	m.active.Done()
	return m.mu.draining
}

// logEnd logs how a stream ended: as a warning if its client was too slow, which is the only end
// that an operator may have to act on.
func (st *Stream) logEnd(log *zap.Logger, reason EndReason) {
	fields := []zap.Field{
		zap.String("verb", "watch"), zap.String("resource", st.resource()), zap.String("client", st.out.client()),
		zap.Int64("bytes", st.bytes.Load()),
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
func (st *Stream) stateWidth() int64 {
	switch st.start {
	case plan.StateAny, plan.StateAtLeast, plan.StateConsistent:
	default:
		return 0
	}
	size := sizeOf(st.source.Resource().Snapshot(), st.selector())
	if !flowcontrol.IsLarge(size) {
		return 0
	}
	return flowcontrol.Width(size, st.encoding.Gzip)
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
func (st *Stream) refuseSelector(r *flowcontrol.Refusal) *Refusal {
	l := st.manager.opts.Limiter
	if l.Closed() {
		return st.refuseLimited(r)
	}
	return st.refuse(statusSelectors(st.selector(), l.SelectorShare(), int(r.RetryAfter/time.Second)))
}
