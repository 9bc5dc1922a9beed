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

// request is what begins a watch: where it is answered if it cannot begin, and how its client
// departs.
type request interface {
	apistatus.Responder
	Departs(gone func()) (stop func())
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

// reserve reserves what a watch takes of the limits, or answers the request. release gives it back.
func (st *Stream) reserve(c request, flow flowcontrol.Flow) bool {
	var refusal *flowcontrol.Refusal
	if st.lasting, refusal = st.manager.opts.Limiter.AdmitLasting(flow); refusal != nil {
		st.refuse(c, refusal)
		return false
	}
	if costly := st.choose(flow); costly != nil {
		st.manager.refuseSelector(c, st, costly)
		return false
	}
	return true
}

// reserveState reserves what the state takes that the watch begins with, or answers the request. A
// watch that waits for its state to be proven holds none of it.
func (st *Stream) reserveState(c request, flow flowcontrol.Flow) bool {
	width := st.stateWidth()
	if width == 0 {
		return true
	}
	starting, refusal := st.manager.opts.Limiter.AdmitList(c.Departs, flow, width)
	if refusal != nil {
		st.refuse(c, refusal)
		return false
	}
	st.starting = &starting
	return true
}

// refuse answers a request that is beyond the limits.
func (st *Stream) refuse(c request, r *flowcontrol.Refusal) {
	apistatus.WriteLimited(c, st.failure, st.manager.opts.Limiter.Closed(), r.RetryAfter)
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

// Attach gives an admitted stream its sink.
func (m *Manager) Attach(st *Stream, out sink) {
	m.mu.Lock()
	st.out = out
	m.mu.Unlock()
	if m.base.Err() != nil { // closed before this sink was known
		out.cut()
	}
}

// Deliver delivers a stream, and calls cleanup once when it has ended. A panic ends that stream
// alone.
func (m *Manager) Deliver(st *Stream, cleanup func(EndReason)) {
	st.cleanup = cleanup
	defer func() {
		if p := recover(); p != nil {
			m.opts.Panicked(p)
			st.Cleanup(EndAborted)
		}
	}()
	if admit := st.admit; admit != nil {
		st.permit = admit(st)
		st.admit = nil
	}
	m.deliver.deliver(st)
}

// Ended counts a stream out, and logs and counts why it ended. It reports whether the server
// drains.
func (m *Manager) Ended(st *Stream, reason EndReason) (draining bool) {
	st.release(reason)
	if st.permit != nil {
		st.permit.Release()
	}
	m.metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Dec()
	m.metrics.ends.WithLabelValues(st.resource(), string(reason)).Inc()
	st.logEnd(m.log, reason)
	m.ended.note(st, reason)
	st.record.over()
	return m.remove(st)
}

// Dismiss counts out a stream that was admitted and that is not delivered after all. It does
// nothing after Take.
func (m *Manager) Dismiss(st *Stream) {
	if st.taken {
		return
	}
	st.taken = true
	st.release(EndAborted)
	m.metrics.streams.WithLabelValues(st.resource(), plan.EncodingName(st.encoding)).Dec()
	m.remove(st)
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
	if reason.revoked() {
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
	everywhere := sel.Namespace == "" && sel.Name == "" && !state.Finds(sel)
	if !state.Finds(sel) {
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

// refuseSelector answers a watch whose selector is too much.
func (m *Manager) refuseSelector(c request, st *Stream, r *flowcontrol.Refusal) {
	l := m.opts.Limiter
	if l.Closed() {
		apistatus.WriteLimited(c, st.failure, true, r.RetryAfter)
		return
	}
	apistatus.WriteAs(c, st.failure, statusSelectors(st.selector(), l.SelectorShare(),
		int(r.RetryAfter/time.Second)))
}
