package mirror

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/memory"
	"spillway/internal/mirror/states"
	"spillway/internal/object"
)

// wantsSlot reports that no more resources may be mirrored on demand. Callers hold mu.
func (s *Set) wantsSlot(info *object.Resource, running map[schema.GroupVersionResource]*mirror) bool {
	if s.onDemand(running) < s.o.MaxOnDemand {
		return false
	}
	s.slots.passed.Add(1)
	if s.slots.said.Try(time.Now()) {
		s.log.Warn("passes through: as many resources are mirrored on demand as --max-resources allows",
			zap.Stringer("resource", info), zap.String("version", info.GVR.Version), zap.Int("max-resources", s.o.MaxOnDemand),
			zap.Uint64("requests", s.slots.passed.Load()))
	}
	return true
}

// slotRejections counts the requests that passed through for want of a slot.
type slotRejections struct {
	passed atomic.Uint64
	said   states.Pace // guarded by Set.mu
}

// onDemand is how many of the mirrors run because a client asked for them.
func (s *Set) onDemand(running map[schema.GroupVersionResource]*mirror) int {
	n := len(running)
	for _, info := range *s.named.Load() {
		if running[info.GVR] != nil {
			n--
		}
	}
	return n
}

// turnAway reports that there is no memory for another mirror: its requests pass through.
func (s *Set) turnAway() bool {
	full := memory.Step(s.step.Load()) >= memory.RefuseAndEvict
	if full {
		s.turned.Add(1)
	}
	return full
}

// RefusedForMemory is how many requests passed through since memory was too short to mirror what
// they are for.
func (s *Set) RefusedForMemory() int64 { return s.turned.Load() }

// firstStateTimeout is how long a first state keeps others waiting.
const firstStateTimeout = 15 * time.Second

// queue waits for a place to be mirrored. It is given back when the first state is there, or does
// not come.
func (s *Set) queue(ctx context.Context, m *mirror) {
	if s.first == nil {
		return
	}
	select {
	case s.first <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.active.Go(func() {
		defer func() { <-s.first }()
		ctx, cancel := context.WithTimeout(ctx, firstStateTimeout)
		defer cancel()
		for {
			changed := m.resource.Changed()
			if m.resource.IsReady() || m.resource.IsClosed() {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}
