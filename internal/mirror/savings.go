package mirror

import (
	"context"
	"math"
	"time"

	"spillway/internal/codec"
	"spillway/internal/mirror/states"
)

// What mirrors do without while memory is short, each by itself.

// ForgoEncodings implements memory.MirrorSavings.
func (m *Set) ForgoEncodings(on bool) {
	if on {
		m.memo.Forgo(codec.Encodes)
	} else {
		m.memo.Forgo(nil)
	}
}

// ForgoSegments implements memory.MirrorSavings. It keeps a little: what a herd of equals asks for
// is little, and to compress it anew for each of them would cost more than it gives.
func (m *Set) ForgoSegments(on bool) {
	if on {
		m.memo.Bound(m.o.EncodedBytesAtLeast)
	} else {
		m.memo.Bound(math.MaxInt64)
	}
}

// Shorten implements memory.MirrorSavings.
func (m *Set) Shorten(on bool) {
	for _, one := range m.all() {
		one.resource.Shorten(on)
	}
}

// Economize implements memory.MirrorSavings.
func (m *Set) Economize(on bool) {
	for _, one := range m.all() {
		one.hub.Economize(on)
	}
}

// RefuseOnDemand implements memory.MirrorSavings.
func (m *Set) RefuseOnDemand(on bool) { m.full.Store(on) }

// firstWait is how long a first state keeps others waiting.
const firstWait = 15 * time.Second

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
		ctx, cancel := context.WithTimeout(ctx, firstWait)
		defer cancel()
		for {
			changed := one.resource.Changed()
			if one.resource.Ready() || one.resource.Retired() {
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

// restless is the time without a request after which a resource is given up while memory is short.
const restless = time.Minute

// Retreat implements memory.MirrorSavings. It gives up what was to be mirrored on demand and has no
// state yet, however much of it has arrived: how much more there is, is not known. Mirrors without
// a request for a minute go, too.
func (m *Set) Retreat() {
	m.dropIdleSince(time.Now().Add(-restless))
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvr, one := range *m.running.Load() {
		if m.isNamed(gvr) || one.resource.Ready() {
			continue
		}
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyMemory, Text: "memory is short"})
		one.end()
	}
}

// EncodedBytes is how many bytes are kept of what was made of objects.
func (m *Set) EncodedBytes() int64 { return m.memo.Held() }

// RefusedForMemory is how many requests passed through since memory was too short to mirror what
// they are for.
func (m *Set) RefusedForMemory() int64 { return m.turned.Load() }

// turnAway reports that there is no memory for another mirror: its requests pass through.
func (m *Set) turnAway() bool {
	full := m.full.Load()
	if full {
		m.turned.Add(1)
	}
	return full
}
