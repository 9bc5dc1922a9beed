package watch

import (
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/flowcontrol"
	"spillway/internal/plan"
)

// reserve reserves what a watch takes of the limits. release gives it back.
func (s *Stream) reserve(flow flowcontrol.Flow) *Refusal {
	permit, refusal := s.manager.opts.Limiter.AdmitLasting(flow)
	if refusal != nil {
		return s.refuseLimited(refusal)
	}
	s.watchPermit = permit
	if refusal := s.reserveSelector(flow); refusal != nil {
		return s.refuseSelector(refusal)
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
	permit, refusal := s.manager.opts.Limiter.AdmitList(onDisconnect, flow, width)
	if refusal != nil {
		return s.refuseLimited(refusal)
	}
	s.statePermit = &permit
	return nil
}

// refuseLimited refuses a watch that is beyond the limits.
func (s *Stream) refuseLimited(r *flowcontrol.Refusal) *Refusal {
	return &Refusal{apistatus.Limited(s.failureFormat, s.manager.opts.Limiter.Closed(), r.RetryAfter)}
}

// releaseState gives back what the initial state takes.
func (s *Stream) releaseState() {
	if s.statePermit != nil {
		s.statePermit.Release()
		s.statePermit = nil
	}
}

// reserveSelector counts the stream's selector.
func (s *Stream) reserveSelector(flow flowcontrol.Flow) (refusal *flowcontrol.Refusal) {
	claimed, refusal := s.manager.opts.Limiter.ClaimSelector(&s.selectorClaim, flow, s.source, s.selector(), s.encoding)
	s.liveSelector.Store(&claimed)
	return refusal
}

// refuseSelector refuses a watch with whose selector those of its user would be too many.
func (s *Stream) refuseSelector(r *flowcontrol.Refusal) *Refusal {
	limiter := s.manager.opts.Limiter
	if limiter.Closed() {
		return s.refuseLimited(r)
	}
	message := fmt.Sprintf("the selectors of this user's watches would have more than %d terms with this one, which "+
		"counts %d: select less in each, let watches share a selector, or have --max-selector-terms-per-user raised",
		limiter.SelectorShare(), s.selector().Weight())
	return s.refuse(apistatus.New(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message,
		&metav1.StatusDetails{RetryAfterSeconds: int32(r.RetryAfter / time.Second)})) // #nosec G115 -- some seconds
}

// stateWidth is about what the state counts as that the watch begins with; 0 if there is none, or
// only a small one.
func (s *Stream) stateWidth() int64 {
	switch s.start {
	case plan.StateAny, plan.StateAtLeast, plan.StateConsistent:
	default:
		return 0
	}
	state := s.source.Resource().Snapshot()
	if state == nil || !flowcontrol.IsLarge(state.Bytes) {
		return 0
	}
	size := state.EstimateBytes(s.selector())
	if !flowcontrol.IsLarge(size) {
		return 0
	}
	return flowcontrol.Width(size, s.encoding.Gzip)
}
