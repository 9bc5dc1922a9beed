package process

import (
	"context"
	"sync"
	"testing"
)

// KeepBusy keeps processors computing until the test ends, each by a goroutine.
func KeepBusy(t *testing.T, goroutines int) {
	t.Helper()
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range goroutines {
		running.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
}
