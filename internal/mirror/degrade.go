package mirror

import (
	"math"
	"time"

	"spillway/internal/codec"
	"spillway/internal/memory"
	"spillway/internal/mirror/states"
)

// shortIdleTimeout is the time without a request after which a mirror on demand ends while memory
// is short.
const shortIdleTimeout = time.Minute

// Degrade makes the mirrors do without the memory that a step of the guard takes: bytes that can be
// made again, then history, then resources that are mirrored on demand. Only the guard calls it,
// and repeats it while a step is taken, for mirrors that have begun meanwhile.
func (s *Set) Degrade(step memory.Step) {
	dropsDerived, shortensHistory := step >= memory.DropDerived, step >= memory.ShortenHistory
	before := memory.Step(s.memoryStep.Swap(int32(step))) // #nosec G115 -- one of four steps
	if before >= memory.DropDerived != dropsDerived {
		s.dropEncodings(dropsDerived)
	}
	for _, m := range s.all() {
		m.hub.SetLowMemory(dropsDerived)
		m.resource.SetShortHistory(shortensHistory)
	}
	if step >= memory.RefuseAndEvict {
		s.dropIdleSince(time.Now().Add(-shortIdleTimeout))
		s.endUnready()
	}
}

// dropEncodings drops the protobuf of objects and most compressed answers. EncodedBytesAtLeast of
// the compressed ones stay, because equal requests of a herd share them.
func (s *Set) dropEncodings(on bool) {
	if on {
		s.encodings.Disable(codec.Encodes)
		s.encodings.Bound(s.o.EncodedBytesAtLeast)
	} else {
		s.encodings.Disable(nil)
		s.encodings.Bound(math.MaxInt64)
	}
}

// endUnready ends mirrors on demand that have no state yet, however much of it has arrived: how
// much more there is, is not known.
func (s *Set) endUnready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gvr, m := range *s.running.Load() {
		if !s.isNamed(gvr) && !m.resource.IsReady() {
			s.detachAndEndLocked(m, states.Cause{Why: states.WhyMemoryPressure, Text: "memory is short"})
		}
	}
}

// EncodingCacheBytes is how many bytes of cached encodings there are.
func (s *Set) EncodingCacheBytes() int64 { return s.encodings.HeldBytes() }
