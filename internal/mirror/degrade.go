package mirror

import (
	"math"
	"time"

	"spillway/internal/codec"
	"spillway/internal/memory"
	"spillway/internal/mirror/states"
)

// Degrade makes the mirrors do without what the guard's step takes: what is made of objects and can
// be made again, then history, then resources that are mirrored on demand. The guard alone calls
// it, again and again while a step is taken, for mirrors that have begun meanwhile.
func (s *Set) Degrade(step memory.Step) {
	derived, short := step >= memory.DropDerived, step >= memory.ShortenHistory
	before := memory.Step(s.step.Swap(int32(step))) // #nosec G115 -- one of four steps
	if before >= memory.DropDerived != derived {
		s.dropDerived(derived)
	}
	for _, m := range s.all() {
		m.hub.SetLowMemory(derived)
		m.resource.SetShortHistory(short)
	}
	if step >= memory.RefuseAndEvict {
		s.retreat()
	}
}

// dropDerived keeps no object in another encoding than upstream's JSON, and little of what was
// compressed: equal requests of a herd share a little, and compressing it again for each of them
// would cost more than dropping it gives.
func (s *Set) dropDerived(on bool) {
	if on {
		s.memo.Disable(codec.Encodes)
		s.memo.Bound(s.o.EncodedBytesAtLeast)
	} else {
		s.memo.Disable(nil)
		s.memo.Bound(math.MaxInt64)
	}
}

// shortIdleTimeout is the time without a request after which a mirror on demand ends while memory
// is short.
const shortIdleTimeout = time.Minute

// retreat ends mirrors on demand that have no state yet, however much of it has arrived: how much
// more there is, is not known. Mirrors without a request for a minute end, too.
func (s *Set) retreat() {
	s.dropIdleSince(time.Now().Add(-shortIdleTimeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvr, m := range *s.running.Load() {
		if s.isNamed(gvr) || m.resource.IsReady() {
			continue
		}
		s.remove(m)
		s.dismiss(m, states.Cause{Why: states.WhyMemoryPressure, Text: "memory is short"})
		m.end()
	}
}

// EncodingCacheBytes is how many bytes are kept of what was made of objects.
func (s *Set) EncodingCacheBytes() int64 { return s.memo.HeldBytes() }
