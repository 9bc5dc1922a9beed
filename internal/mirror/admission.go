package mirror

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/memory"
	"spillway/internal/object"
)

const (
	// firstStateTimeout is how long a first state on demand keeps others waiting.
	firstStateTimeout = 15 * time.Second
	// minSlotLogInterval and maxSlotLogInterval are the intervals between the log lines that say that
	// --max-resources is reached.
	minSlotLogInterval = time.Minute
	maxSlotLogInterval = 10 * time.Minute
)

// admitLocked reports whether another resource may be mirrored on demand. A request that is refused
// one passes through, and is counted.
func (s *Set) admitLocked(info *object.Resource, running map[schema.GroupVersionResource]*mirror) bool {
	switch {
	case s.countOnDemand(running) >= s.o.MaxOnDemand:
		refused := s.refusedForSlots.Add(1)
		if s.mu.slotLog.Try(time.Now()) {
			s.log.Warn("passes through: as many resources are mirrored on demand as --max-resources allows",
				zap.Stringer("resource", info), zap.String("version", info.GVR.Version),
				zap.Int("max-resources", s.o.MaxOnDemand), zap.Uint64("requests", refused))
		}
		return false
	case memory.Step(s.memoryStep.Load()) >= memory.RefuseAndEvict:
		s.refusedForMemory.Add(1)
		return false
	}
	return true
}

// countOnDemand is how many of the mirrors run because a client requested their resource.
func (s *Set) countOnDemand(running map[schema.GroupVersionResource]*mirror) int {
	n := len(running)
	for _, info := range *s.named.Load() {
		if running[info.GVR] != nil {
			n--
		}
	}
	return n
}

// RefusedForMemory is how many requests passed through because memory was too short to mirror their
// resource.
func (s *Set) RefusedForMemory() int64 { return s.refusedForMemory.Load() }

// awaitFirstStatePlace waits for one of the places for first states on demand, or until ctx ends.
// The place is free again when the mirror has its first state, or firstStateTimeout is over.
func (s *Set) awaitFirstStatePlace(ctx context.Context, m *mirror) {
	if s.firstStates == nil {
		return
	}
	select {
	case s.firstStates <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.active.Go(func() {
		defer func() { <-s.firstStates }()
		ctx, cancel := context.WithTimeout(ctx, firstStateTimeout)
		defer cancel()
		m.awaitFirstState(ctx)
	})
}
