package flowcontrol

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// RejectedFlow is what is known of the requests of one flow that limits have rejected with 429. Of
// a long name it has the beginning.
type RejectedFlow struct {
	Flow    Flow
	Since   time.Time // of the first one
	At      time.Time // of the last one, as are Limit and Reason
	Limit   string
	Reason  Reason
	Counted uint64
}

const (
	// rejectedFlowsLimit is how many flows are remembered: those with the last rejections.
	rejectedFlowsLimit = 64
	// rejectedNameBytesLimit is how many bytes of a user's name are kept. Names that begin with the
	// same ones are counted as one.
	rejectedNameBytesLimit = 256
)

// rejections are the last rejections of each flow, for the status page. They cost a request that is
// not rejected nothing.
type rejections struct {
	mu    sync.Mutex
	flows map[Flow]*RejectedFlow
}

// note counts a request of a flow that a limit refuses. A request that its client has cancelled is
// not rejected with 429.
func (r *rejections) note(limit string, flow Flow, reason Reason) {
	if reason == ReasonCancelled {
		return
	}
	if len(flow.User) > rejectedNameBytesLimit {
		flow.User = strings.ToValidUTF8(flow.User[:rejectedNameBytesLimit], "")
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.flows[flow]
	if one == nil {
		if len(r.flows) >= rejectedFlowsLimit {
			oldest := slices.MinFunc(slices.Collect(maps.Values(r.flows)), compareAges)
			delete(r.flows, oldest.Flow)
		}
		flow.User = strings.Clone(flow.User) // not a part of a larger text
		one = &RejectedFlow{Flow: flow, Since: now}
		if r.flows == nil {
			r.flows = map[Flow]*RejectedFlow{}
		}
		r.flows[flow] = one
	}
	one.At, one.Limit, one.Reason = now, limit, reason
	one.Counted++
}

func compareAges(a, b *RejectedFlow) int { return a.At.Compare(b.At) }

// Rejections are the flows whose requests limits have rejected, the last one first.
func (l *Limiter) Rejections() []RejectedFlow {
	if l == nil {
		return nil
	}
	l.rejected.mu.Lock()
	defer l.rejected.mu.Unlock()
	all := make([]RejectedFlow, 0, len(l.rejected.flows))
	for _, one := range l.rejected.flows {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b RejectedFlow) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Flow.User, b.Flow.User), a.Flow.Addr.Compare(b.Flow.Addr))
	})
	return all
}
