package watch

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"spillway/internal/clientconn"
)

// A writer that does not get on with its work shows it, and one without work rests.
func TestProgressOfAStuckWriter(t *testing.T) {
	base, stop := context.WithCancelCause(context.Background())
	m := NewManager(Options{Base: base, StallTimeout: time.Minute, CPU: clientconn.NewCPULimiter(1),
		Metrics: NewStreamMetrics(nil), Log: zap.NewNop(), Panicked: func(any) {}})
	defer m.Wait()
	defer stop(EndAborted.AsError())
	w := m.writers.shards[0]
	rests := func() bool {
		_, working := w.loop.Progress()
		return !working
	}
	eventually(t, "the writer to rest", rests)
	w.mu.Lock() // what its next look waits for
	w.wake()
	eventually(t, "the writer to work", func() bool { return !rests() })
	before, _ := w.loop.Progress()
	deadline := time.Now().Add(50 * time.Millisecond)
	for time.Now().Before(deadline) {
		if turns, working := w.loop.Progress(); !working || turns != before {
			t.Fatalf("%d turns, %d before; working: %v", turns, before, working)
		}
	}
	w.mu.Unlock()
	eventually(t, "the writer to rest again", rests)
}
