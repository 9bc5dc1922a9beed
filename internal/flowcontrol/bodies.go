package flowcontrol

import "sync/atomic"

// unprovenBodyBytesLimit is the most of BodyBytes that unproven senders have, also without a limit.
const unprovenBodyBytesLimit = 16 << 20

// unprovenBodyBytes is how many bytes of bodies are read for unproven senders together.
func unprovenBodyBytes(all int64) int64 {
	if all <= 0 {
		return unprovenBodyBytesLimit
	}
	return min(unprovenBodyBytesLimit, max(all/unprovenFraction, 1))
}

// bodyBudget is the bytes of the bodies that are being read, or have been and are being sent on.
type bodyBudget struct {
	most int64 // 0: no limit
	held atomic.Int64
}

func (b *bodyBudget) take(size int64) bool {
	if held := b.held.Add(size); b.most <= 0 || held <= b.most {
		return true
	}
	b.held.Add(-size)
	return false
}

// ReserveBody reserves room for a body that is to be read before it is sent on, and returns how to
// give it back; nil: there is no room. Unproven senders have a small part together.
func (l *Limiter) ReserveBody(size int64, proven bool) (release func()) {
	switch {
	case l == nil:
		return func() {}
	case !l.bodies.take(size):
		return nil
	case proven:
		return func() { l.bodies.held.Add(-size) }
	case !l.unprovenBodies.take(size):
		l.bodies.held.Add(-size)
		return nil
	}
	return func() {
		l.bodies.held.Add(-size)
		l.unprovenBodies.held.Add(-size)
	}
}
