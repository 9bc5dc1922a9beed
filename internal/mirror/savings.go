package mirror

import (
	"context"
	"math"
	"time"

	"spillway/internal/codec"
	"spillway/internal/memory"
	"spillway/internal/mirror/states"
)

// Degrade makes the mirrors do without what the guard's step takes: what is made of objects and can
// be made again, then history, then resources that are mirrored on demand. The guard alone calls
// it, again and again while a step is taken, for mirrors that have begun meanwhile.
func (m *Set) Degrade(step memory.Step) {
	derived, short := step >= memory.DropDerived, step >= memory.ShortenHistory
	before := memory.Step(m.step.Swap(int32(step))) // #nosec G115 -- one of four steps
	if before >= memory.DropDerived != derived {
		m.dropDerived(derived)
	}
	for _, one := range m.all() {
		one.hub.SetLowMemory(derived)
		one.resource.SetShortHistory(short)
	}
	if step >= memory.RefuseAndEvict {
		m.retreat()
	}
}

// dropDerived keeps no object in another encoding than upstream's JSON, and little of what was
// compressed: equal requests of a herd share a little, and compressing it again for each of them
// would cost more than dropping it gives.
func (m *Set) dropDerived(on bool) {
	if on {
		m.memo.Disable(codec.Encodes)
		m.memo.Bound(m.o.EncodedBytesAtLeast)
	} else {
		m.memo.Disable(nil)
		m.memo.Bound(math.MaxInt64)
	}
}

// firstStateTimeout is how long a first state keeps others waiting.
const firstStateTimeout = 15 * time.Second

// queue waits for a place to be mirrored. It is given back when the first state is there, or does
// not come.
func (m *Set) queue(ctx context.Context, one *mirror) {
	if m.first == nil {
		return
	}
	select {
	case m.first <- struct{}{}:
	case <-ctx.Done():
		return
	}
	m.active.Go(func() {
		defer func() { <-m.first }()
		ctx, cancel := context.WithTimeout(ctx, firstStateTimeout)
		defer cancel()
		for {
			changed := one.resource.Changed()
			if one.resource.IsReady() || one.resource.IsClosed() {
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

// shortIdleTimeout is the time without a request after which a mirror on demand ends while memory
// is short.
const shortIdleTimeout = time.Minute

// retreat ends mirrors on demand that have no state yet, however much of it has arrived: how much
// more there is, is not known. Mirrors without a request for a minute end, too.
func (m *Set) retreat() {
	m.dropIdleSince(time.Now().Add(-shortIdleTimeout))
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvr, one := range *m.running.Load() {
		if m.isNamed(gvr) || one.resource.IsReady() {
			continue
		}
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyMemoryPressure, Text: "memory is short"})
		one.end()
	}
}

// EncodingCacheBytes is how many bytes are kept of what was made of objects.
func (m *Set) EncodingCacheBytes() int64 { return m.memo.HeldBytes() }

// RefusedForMemory is how many requests passed through since memory was too short to mirror what
// they are for.
func (m *Set) RefusedForMemory() int64 { return m.turned.Load() }

// turnAway reports that there is no memory for another mirror: its requests pass through.
func (m *Set) turnAway() bool {
	full := memory.Step(m.step.Load()) >= memory.RefuseAndEvict
	if full {
		m.turned.Add(1)
	}
	return full
}
